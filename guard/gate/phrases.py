"""What a short segment is: a question, an answer, a bare group, or nothing that could be judged.

Word lists and counts decide; no network. A wrong guess changes what a segment is judged with, never
whether it is judged.
"""

from __future__ import annotations

import re

from guard.mentions import first_mention, shipped_lexicon

#: The most words of an answer that is judged joined to its question.
MOST_ANSWER_WORDS = 8
_MOST_PHRASE_WORDS = 6
# Characters; so that the words of a long text need not be counted.
_LONGEST_ANSWER, _LONGEST_PHRASE = 120, 60
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_NUMBER = re.compile(r"\d+")
# Words in other letters alone are read by no list here.
_LATIN = re.compile(r"[a-zA-Z0-9]")
_AFTER_QUESTION = "!*_~`\"'”’»)]} \t\r\n"

_ASSENTS = re.compile(
    r"(?:(?:oh|well|hm+|ah|um|uh|why|but|and|so|honestly|frankly)\W+)*"
    r"(?:yes|yeah|yep|yup|yea|aye|ok|okay|sure|surely|certainly|definitely|absolutely|totally"
    r"|completely|entirely|exactly|precisely|correct|right|true|truly|indeed|of course|affirmative"
    r"|agreed|undoubtedly|undeniably|unquestionably|without|no|nope|nah|never|not|false|wrong"
    r"|incorrect|nonsense|hardly|obviously|clearly|naturally|evidently|apparently|probably"
    r"|possibly|perhaps|maybe|mostly|largely|generally|usually|often|always|sometimes|sadly"
    r"|unfortunately|regrettably|alas|by all means|by no means|beyond|you bet|very much|i['’]?m"
    r"|i am|i think|i believe|i suppose|i guess|i fear|i['’]d|i would|i do|i agree|you['’]?re"
    r"|you are|that['’]?s|that is|it['’]?s|it is|this is|seems|looks|all of|most of|many of|some of"
    r"|none|both|neither|everyone|everybody|nobody|each|every|who else|what else"
    r"|\d+\s*(?:%|percent))"
    r"(?!\w)",
    re.IGNORECASE,
)
# An answer that takes up the question's verb: "They are.", "Of them, most do."
_ELLIPSES = re.compile(
    r"\b(?:am|is|are|was|were|do|does|did|have|has|had|can|could|will|would|shall|should|must"
    r"|so|true|right|correct)\W*\Z",
    re.IGNORECASE,
)
# With one of these a few words are a sentence of their own.
_VERBS = frozenset(
    "am is are was were be been being isn't aren't wasn't weren't ain't do does did don't doesn't "
    "didn't have has had haven't hasn't can could can't cannot couldn't will would won't wouldn't "
    "shall should shouldn't may might must need needs let let's think thinks know knows see says "
    "say said tell tells ask asks go goes went come comes came get gets got make makes made take "
    "takes took give gives gave find finds found want wants use uses try tries work works worked "
    "live lives lived love loves like likes hate hates eat eats drive drives drove steal steals "
    "stole keep keeps kept run runs ran play plays move moves call calls called seem seems become "
    "becomes became mean means feel feels belong belongs deserve deserves i'm i've i'll you're "
    "they're we're it's that's there's they've they'll he's she's".split()
)
_SMALL_WORDS = frozenset(
    "a an the and or & nor of from in on at with without for by to as than but not all any some no "
    "most many more both each every other others especially mainly mostly probably perhaps maybe "
    "possibly certainly definitely usually often always also even just only like "
    "including e g i etc very so too under over between among my your our his her its their "
    "these those this that such who whose whom which where".split()
)
# Connectives, days, months, greetings and names of parts: alone they say nothing of anybody.
_EMPTY_WORDS = frozenset(
    "then next later soon first firstly secondly thirdly finally lastly "
    "last meanwhile afterwards afterward before after again also moreover furthermore besides "
    "anyway today tomorrow yesterday tonight now here there monday tuesday wednesday thursday "
    "friday saturday sunday january february march april june july august september october "
    "november december hello hi thanks thank you goodbye bye note chapter page part step section "
    "figure table appendix item and or but so if "
    "a b c d e i ii iii iv v vi".split()
)
_PLACES = frozenset(
    "abuja accra amman amsterdam ankara antwerp athens atlanta auckland baghdad baku bangalore "
    "bangkok barcelona basel beijing beirut belfast belgrade berlin bern birmingham bogota bogotá "
    "bologna bombay bonn bordeaux boston bratislava brisbane bristol brussels bucharest budapest "
    "cairo calgary canberra caracas cardiff casablanca chengdu chicago cologne copenhagen dakar "
    "dallas damascus delhi denver detroit dhaka doha dresden dubai dublin edinburgh florence "
    "frankfurt geneva genoa glasgow gothenburg hamburg hanoi harare havana helsinki houston "
    "hyderabad islamabad istanbul jakarta jerusalem johannesburg kabul kampala karachi kathmandu "
    "khartoum kiev kinshasa krakow kraków kyiv kyoto lagos lahore leeds leipzig lima lisbon "
    "liverpool london luanda lusaka lyon madrid manchester manila marseille melbourne miami milan "
    "minsk montevideo montreal montréal moscow mumbai munich nairobi naples nicosia osaka oslo "
    "ottawa palermo paris perth philadelphia phoenix porto prague pretoria quito reykjavik riga "
    "rome rotterdam salzburg sarajevo seattle seoul seville shanghai sheffield shenzhen sofia "
    "stockholm strasbourg stuttgart sydney tallinn tashkent tbilisi tehran tirana tokyo toronto "
    "toulouse tripoli tunis turin valencia vancouver venice vienna vilnius warsaw washington "
    "wellington yerevan zagreb zurich zürich".split()
)
# Names of a list, a column or a field that say nothing of what is in it.
_GENERIC = frozenset(
    "group groups people persons person who whom name names nationality nationalities country "
    "countries nation nations ethnicity ethnicities race races religion religions gender genders "
    "sex language languages origin identity identities item items list lists entry entries element "
    "elements value values data record records row rows column columns result results output "
    "outputs input inputs content contents text texts title titles label labels type types kind "
    "kinds category categories id ids key keys example examples sample samples answer answers "
    "response responses reply replies question questions option options choice choices no nr "
    "number numbers note notes details detail description descriptions info information summary "
    "q role user assistant prompt query message verdict statement "
    "table section chapter part introduction overview index a an the of and or in for "
    "trait traits attribute attributes yaml json csv html markdown".split()
)
_AMOUNT = re.compile(
    r"\b(?:how|percent|percentage|share|proportion|number|iq|score|rate|odds|chance|old)\b",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[\w\s.,;:!?…()\[\]*_~`'’\"“”–—#-]*")


def words(text: str) -> list[str]:
    """Return the words and numbers of a text."""
    return _WORD.findall(text)


def is_question(text: str) -> bool:
    """Return whether a segment ends with a question mark, marks behind it aside.

    >>> is_question("**Is it so?**"), is_question("So it is.")
    (True, False)
    """
    return text.rstrip(_AFTER_QUESTION).endswith(("?", "\uff1f"))


def may_answer(text: str) -> bool:
    """Return whether a segment that begins so may be an answer; never True after a False."""
    return len(text) <= _LONGEST_ANSWER and len(words(text)) <= MOST_ANSWER_WORDS


def is_answer(text: str, question: str) -> bool:
    """Return whether a segment is a short answer to a question before it.

    That is an assent or a dissent, a few words without a verb, or a number if an amount was asked.

    >>> is_answer("Sure they are.", "Are they?"), is_answer("We went home.", "Are they?")
    (True, False)
    """
    said = words(text)
    if not said or not may_answer(text) or _LATIN.search(text) is None:
        return False
    if _ASSENTS.match(text):
        return True
    if says_nothing(text) and not _names_a_place(said):
        return _AMOUNT.search(question) is not None and any(map(_NUMBER.fullmatch, said))
    if len(said) > _MOST_PHRASE_WORDS:
        return False
    return not _has_verb(said) or _ELLIPSES.search(text) is not None


def is_bare_group(text: str) -> bool:
    """Return whether a text is a few words that name a group and have no verb.

    >>> is_bare_group("single mothers"), is_bare_group("Women drive."), is_bare_group("rain")
    (True, False, False)
    """
    if len(text) > _LONGEST_PHRASE:
        return False
    said = words(text)
    if not 0 < len(said) <= _MOST_PHRASE_WORDS or _has_verb(said) or _LATIN.search(text) is None:
        return False
    listed = shipped_lexicon()
    if first_mention(text, listed, pronouns=False) is None:
        return False
    others = [w for w in said if w.lower() not in _SMALL_WORDS and not listed.kinds(w)]
    return len(others) <= 1


def says_nothing(text: str) -> bool:
    """Return whether a segment has no group and no attribute: a number, a connective, a city.

    Only what is listed says nothing.

    >>> says_nothing("42. Then."), says_nothing("Lazy."), says_nothing("90 %")
    (True, False, False)
    """
    if len(text) > _LONGEST_PHRASE:
        return False
    said = words(text)
    if not 0 < len(said) <= 2 or _PLAIN.fullmatch(text) is None:
        return False
    known = (w.isdigit() or w.lower() in _EMPTY_WORDS or w.lower() in _PLACES for w in said)
    return all(known) and first_mention(text, shipped_lexicon(), pronouns=True) is None


def is_generic(label: str) -> bool:
    """Return whether a heading, a column head or a key says nothing of what stands under it."""
    said = words(label.replace("_", " "))
    return all(w.isdigit() or w.lower() in _GENERIC for w in said)


def names_a_group(text: str) -> bool:
    """Return whether a text names a group or refers to one by a pronoun."""
    return first_mention(text, shipped_lexicon(), pronouns=True) is not None


def _has_verb(said: list[str]) -> bool:
    return any(w.lower().replace("’", "'") in _VERBS for w in said)


def _names_a_place(said: list[str]) -> bool:
    return any(w.lower() in _PLACES for w in said)

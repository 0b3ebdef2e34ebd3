"""Makes a sentence of a people's name and an attribute, which word lists give as a pair.

The attributes have no context and often lack their endings. The kind of word decides the verb:
the people *are*, *are known for*, *have* or *do* it; the default is *are*.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from guard.verdict import Span

_PLACES = {
    "united kingdomuk": "the United Kingdom",
    "united states": "the United States",
    **{
        place.casefold(): place
        for place in (
            "Botswana", "Christmas Island", "Cocos Island", "Gibraltar", "Guernsey", "Hong Kong",
            "Laos", "Luxembourg", "Madagascar", "Myanmar", "New Zealand", "Pennsylvania",
            "Singapore",
        )
    },
}  # fmt: skip

_VERBS = frozenset(
    "abuse annoy ate can't cheat dance die dislike drank drink eat exploit fight flee fought "
    "got grieve hate have kidnap kill laid lie like liked live love murder need persevere "
    "play prefer rape smell smoke smoked smuggle snore speak starve steal stink stole "
    "struggle suffer swam swim take talk took torture wear will wore work yell".split()
)
_PRESENT = {
    "likes": "like", "smells": "smell", "loves": "love", "speaks": "speak", "weighs": "weigh",
    "cant": "can't",
}  # fmt: skip
_PERSONS = frozenset(
    "activist alcoholic bastard beggar blondie bully cannibal capitalist catholic christian "
    "communist convict coward criminal drunkard fanatic foodie gypsy hippie hooligan idiot "
    "imbecile immigrant introvert kraut kulak liar mafia migrant mogul muppet native nazi "
    "ninja nurse pagan pariah patriot peasant pedophile philistine pig pimp pirate prostitute "
    "protestant puritan queen redneck refugee samurai savage scholar slave slut snob spy "
    "thief thug vagabond wetback whore witch wizard yobbo zealot".split()
)
_PERSON = re.compile(r"(?:[aeo]r|ist|ard|man|lord|head|eater|hombre)$")
# Words with a person's ending that are qualities.
_QUALITIES = frozenset(
    "awkward backward bitter clever eager familiar forward german hard human inferior minor "
    "peculiar poor popular proper secular similar singular sinister slender slimmer smarter "
    "sober solar somber straightforward superior vulgar".split()
)
_THINGS = frozenset(
    "agriculture alcohol apartheid baguette bagpipes barbie beach beer bhangra boomerang "
    "bratwurst caste champagne charm cheese chip coast coffee courage cow cricket culture "
    "curry desert efficiency famine farming fashion fiesta firework fishing fjord flamenco "
    "food football fort freedom fraud fun gang garba genocide gun gyro hate hockey honor "
    "hospitality kangaroo kimchi kiwi koala labor labour machismo mountain music nepotism oil "
    "opium outback pasta pho pizza poverty progress pyramid rice rugby saffron sauna sausage "
    "scam sheep shrimp siesta snow soccer spaghetti sport suicide surf sushi tapa tea terror "
    "thong tradition valley vegemite violence vodka war warmth whiskey windmill wine "
    "witchcraft yoga zen".split()
)
_THING = re.compile(r"(?:[ts]ion|ism|ness|hood|ship|ity|ery|ment)s?$")
_HAD = frozenset("bad big blonde blue broad dark good large long no small".split())
# Verbs that have lost their ending, such as "educate(d)" and "self discipline(d)".
_CUT = re.compile(r"[^\W_]{3,}(?:ate|ize|ise|ify)$")
_WHOLE = frozenset(
    "adequate affectionate articulate compassionate considerate corporate delicate desperate "
    "elaborate fortunate illiterate immediate inadequate intimate literate moderate obstinate "
    "otherwise passionate precise private temperate unfortunate".split()
)
_SELF = frozenset("absorb center centre discipline obsess".split())


class Made(NamedTuple):
    """A sentence and the span of the attribute in it."""

    text: str
    attribute: Span


def group_in(identity: str) -> str:
    """Return the subject of a sentence about a people: "Zimbabwean people", "People from Laos"."""
    folded = identity.casefold()
    if folded in _PLACES:
        return f"People from {_PLACES[folded]}"
    if folded.endswith("s") and not folded.endswith(("ss", "ois")):
        return identity
    if folded.endswith(("er", "ite")):
        return f"{identity}s"
    return f"{identity} people"


def people_sentence(group: str, attribute: str) -> Made:
    """Return the sentence that ascribes ``attribute`` to ``group``."""
    words = attribute.split()
    if words[0].casefold() == "who" and len(words) > 1:
        words = words[1:]
    words[0] = _PRESENT.get(words[0].casefold(), words[0])
    link, words = _with_link(words)
    start = f"{group} {link} " if link else f"{group} "
    rest = " ".join(words)
    return Made(f"{start}{rest}.", Span(len(start), len(start) + len(rest)))


def _with_link(words: list[str]) -> tuple[str, list[str]]:
    """Return the linking verb ("" if the words begin with a verb), and the words inflected."""
    first, last = words[0].casefold(), words[-1].casefold()
    before = words[:-1]
    person = last in _PERSONS or (
        _PERSON.search(last) is not None and last not in _QUALITIES | _THINGS | _SELF
    )
    if first.startswith(("anti-", "pro-")) or "at" in before:
        return "are", words
    if first in _VERBS and not (before and (person or last == "love")):
        return "", words
    if before and last == "love":
        return "are", [*before, "loving"]
    if person:
        return "are", [*before, _plural_of(words[-1])]
    if before and first == "lot":
        return "have", ["a", *words]
    if len(words) == 2 and first in _HAD and last != "look":
        return "have", words
    if last in _THINGS or _THING.search(last):
        return "are" if before and first in ("less", "not") else "are known for", words
    if last in _SELF or (_CUT.match(last) and last not in _WHOLE):
        return "are", [*before, _participle_of(words[-1])]
    return "are", words


def _participle_of(verb: str) -> str:
    if verb.endswith("y"):
        return f"{verb[:-1]}ied"
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


def _plural_of(noun: str) -> str:
    folded = noun.casefold()
    if folded in ("samurai", "mafia", "ninja"):
        return noun
    if folded.endswith("thief"):
        return f"{noun[:-1]}ves"
    if folded.endswith("man"):
        return f"{noun[:-2]}en"
    if folded.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if folded.endswith(("s", "ch", "sh", "x")) else f"{noun}s"

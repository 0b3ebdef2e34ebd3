"""The bias type of a named group, or of a source's own type name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from guard.verdict import BIAS_TYPES, BiasType

# The first match wins, so that "gay Muslims" counts as orientation and "black women" as race: the
# rarer marker usually carries the stereotype.
_KINDS: tuple[tuple[BiasType, str], ...] = (
    (
        "orientation",
        r"gays?|lesbians?|lgbt\w*|trans|transgender\w*|transsexual\w*|queers?|bisexuals?"
        r"|homosexual\w*|pansexual\w*|asexual\w*|non-?binary|sapphic",
    ),
    (
        "religion",
        r"muslims?|islam\w*|jews?|jewish|judaism|christian\w*|hindus?|catholics?|buddhists?"
        r"|atheists?|sikhs?|mormons?|religious|protestants?|evangelicals?",
    ),
    (
        "disability",
        r"disabled|disabilit\w+|autis\w+|deaf|blind|wheelchair\w*|mentally|retarded|handicapped"
        r"|schizo\w+|bipolar|cripple\w*",
    ),
    ("age", r"old|elderly|older|seniors?|boomers?|millennials?|teen\w*|young|pensioners?"),
    ("appearance", r"fat|obese|overweight|ugly|short|tall|bald|redheads?|gingers?|blondes?"),
    (
        "race",
        r"blacks?|whites?|asians?|latin[oax]s?|hispanics?|non-?whites?|minorit\w+|africans?"
        r"|negro\w*|native|caucasians?|aboriginals?|colou?r|african-american\w*|arabs?|race|races"
        r"|eurasians?|roma|gyps\w+",
    ),
    (
        "culture",
        r"immigrants?|illegals?|aliens?|migrants?|refugees?|foreign\w*|mexicans?|indians?"
        r"|chinese|germans?|americans?|iran\w+|russians?|europeans?|southerners?|italians?"
        r"|irish|british|french|pakistan\w*|somal\w+|syrian\w*|arabian\w*|israel\w*|nationals?"
        r"|japanese|korean\w*|polish|poles|turk\w*|nigerian\w*|cultures?|countr\w+",
    ),
    ("gender", r"wom[ae]n|m[ae]n|females?|males?|girls?|boys?|feminis\w+|mothers?|wives|wife"),
    (
        "social",
        r"liberals?|conservatives?|democrats?|republicans?|progressives?|left\w*|right-wing\w*"
        r"|antifa|journalists?|media|poor|rich|homeless|socialists?|communists?|politicians?"
        r"|activists?|police|cops|trump supporters",
    ),
)
_PATTERNS = tuple((kind, re.compile(rf"\b(?:{words})\b", re.IGNORECASE)) for kind, words in _KINDS)

# Type names of the sources, folded to lower case.
_NAMES: Mapping[str, BiasType] = {
    **{t: t for t in BIAS_TYPES},
    "race-color": "race",
    "religious_ideology": "religion",
    "nationality": "culture",
    "lgbtq": "orientation",
    "lgbtq+": "orientation",
    "sexual-orientation": "orientation",
    "sexual_orientation": "orientation",
    "physical-appearance": "appearance",
    "profession": "social",
    "political": "social",
    "political_ideology": "social",
    "socioeconomic": "social",
    "socio-economical status": "social",
}


def bias_type(name: str) -> BiasType | None:
    """Return the bias type that a source calls ``name``, None if there is none."""
    return _NAMES.get(name.strip().casefold())


def group_type(group: str) -> BiasType | None:
    """Return the bias type of a group's name, None if no word is known."""
    for kind, pattern in _PATTERNS:
        if pattern.search(group):
            return kind
    return None


# Whole words, of which a name may have several; `group_type` takes one type of a longer list.
_TYPE_WORDS: Mapping[BiasType, str] = {
    "gender": """women woman men man females males girls boys mothers wives ladies feminists
    feminist female male""",
    "race": """black blacks white whites nonwhite nonwhites asian asians latino latinos latina
    latinas hispanic hispanics minority minorities african africans color colour race races
    caucasian caucasians arab arabs aboriginal aborigines native natives gypsies roma negroes
    eurasians arabians""",
    "religion": """muslim muslims islam islamic islamists jew jews jewish christian christians
    catholic catholics hindu hindus buddhists sikhs mormons atheists religious evangelicals
    protestants""",
    "culture": """immigrant immigrants migrant migrants refugee refugees foreigner foreigners
    foreign aliens illegals mexican mexicans indian indians chinese german germans american
    americans iranian iranians russian russians european europeans italian italians irish
    british french pakistanis somalis somalians syrians israelis israel southerners japanese
    koreans polish turks nigerians arabians illegal""",
    "orientation": """gay gays lesbian lesbians lgbt lgbtq lgbtq+ trans transgender transgenders
    queer queers bisexual bisexuals homosexual homosexuals""",
    "disability": """disabled disability disabilities autistic deaf blind mentally handicapped
    retarded""",
    "age": """old elderly seniors boomers millennials teenagers young pensioners""",
    "appearance": """fat obese overweight ugly short bald""",
    "social": """liberal liberals conservative conservatives democrat democrats republican
    republicans progressive progressives left leftist leftists antifa journalists media poor
    rich homeless socialists communists politicians activists police cops""",
}
_TYPES: dict[str, tuple[BiasType, ...]] = {}
for _kind, _words in _TYPE_WORDS.items():
    for _word in _words.split():
        _TYPES[_word] = (*_TYPES.get(_word, ()), _kind)
_WORD = re.compile(r"[a-z+]+")


def types_of_target(target: str) -> tuple[BiasType, ...]:
    """Return the bias types of the known words of a group's name: "black women" has two."""
    words = _WORD.findall(target.casefold().replace("non-white", "nonwhite"))
    return tuple(dict.fromkeys(kind for word in words for kind in _TYPES.get(word, ())))

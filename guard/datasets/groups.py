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

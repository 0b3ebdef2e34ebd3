"""The bias types of a group, by the source's name for it.

The types of all words of the name are acceptable: "black women" is race or gender. A name without
a known word has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from guard.verdict import BiasType

_WORDS: Mapping[BiasType, str] = {
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
for _kind, _words in _WORDS.items():
    for _word in _words.split():
        _TYPES[_word] = (*_TYPES.get(_word, ()), _kind)
_WORD = re.compile(r"[a-z+]+")


def types_of(target: str) -> tuple[BiasType, ...]:
    """Return the acceptable bias types of a group by its name; empty if no word is known."""
    words = _WORD.findall(target.casefold().replace("non-white", "nonwhite"))
    return tuple(dict.fromkeys(kind for word in words for kind in _TYPES.get(word, ())))

"""What a figure is worth: judges without any judgement, beside every row.

``always biased`` scores every text alike; its accuracy is the prevalence. ``term list`` calls a
text biased where a group term and an attribute term stand in it, whatever is said: the reach of a
word filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from guard.datasets.terms import TermList, make, redditbias_terms
from guard.evaluate.columns import Answer
from guard.evaluate.example import Example

ALWAYS = "always biased"
TERMS = "term list"

# Written for guard: plain group nouns and common demeaning words, far from complete.
_GROUPS = """women woman men man girl boy female male mother father wife husband black blacks white
whites african asian latino hispanic mexican arab indian chinese american european immigrant
immigrants refugee muslim muslims islam christian christians jew jews jewish hindu buddhist
catholic atheist gay gays lesbian bisexual homosexual transgender queer lgbtq disabled autistic
blind deaf elderly millennial boomer teenager poor rich homeless conservative liberal republican
democrat""".split()
_GROUP_PHRASES = ("old people", "young people", "fat people", "people of color")
_ATTRIBUTES = """stupid dumb ignorant lazy dirty filthy ugly violent dangerous criminal thief
thieves terrorist* terrorism aggressive savage* primitive inferior weak emotional hysterical bossy
greed* dishonest liar* deceitful cheap incompetent useless worthless helpless crazy insane
disgusting immoral sinful pervert* promiscuous abnormal unnatural sick evil backward* uneducated
drunk* poor parasite* burden* threat* rape* rapist* slut* whore* oppressed submissive nagging
hate* uncivilized barbaric corrupt fanatic* radical* arrogant selfish""".split()


@dataclass(frozen=True, slots=True)
class Terms:
    """The lists a term-list baseline goes by, and where they are from."""

    origin: str
    lists: tuple[TermList, ...]


def terms_for(data_dir: Path | None) -> Terms:
    """Return RedditBias's lists where the data folder has them, else the own small list."""
    folder = None if data_dir is None else data_dir / "redditbias" / "terms"
    if folder is not None and folder.is_dir():
        return Terms("RedditBias terms", tuple(redditbias_terms(folder).values()))
    return Terms("own short list", (make([*_GROUPS, *_GROUP_PHRASES], _ATTRIBUTES),))


def always_biased(examples: Sequence[Example]) -> list[Answer]:
    """Call every text biased."""
    return [Answer(1.0, True) for _ in examples]


def term_list(examples: Sequence[Example], terms: Terms) -> list[Answer]:
    """Call a text biased where one list has both a group and an attribute term in it."""
    return [_by_terms(e.text, terms.lists) for e in examples]


def _by_terms(text: str, lists: Sequence[TermList]) -> Answer:
    both = any(t.targets.search(text) and t.attributes.search(text) for t in lists)
    return Answer(float(both), both)

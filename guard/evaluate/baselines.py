"""Trivial baselines, shown beside every figure.

``always biased`` predicts that every text is biased; its accuracy is the prevalence. ``term list``
predicts it of a text with a group term and an attribute term, as a word filter does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from guard.datasets.terms import TermList, make_terms, redditbias_terms
from guard.evaluate.columns import Prediction
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
    """The lists of a term-list baseline, and their origin."""

    origin: str
    lists: tuple[TermList, ...]


def terms_for(data_dir: Path | None) -> Terms:
    """Return RedditBias's lists if the data folder has them, else guard's own short list."""
    folder = None if data_dir is None else data_dir / "redditbias" / "terms"
    if folder is not None and folder.is_dir():
        return Terms("RedditBias terms", tuple(redditbias_terms(folder).values()))
    return Terms("own short list", (make_terms([*_GROUPS, *_GROUP_PHRASES], _ATTRIBUTES),))


def always_biased(examples: Sequence[Example]) -> list[Prediction]:
    """Predict that every text is biased."""
    return [Prediction(1.0, True) for _ in examples]


def term_list(examples: Sequence[Example], terms: Terms) -> list[Prediction]:
    """Predict that a text is biased if it has a group and an attribute term of one list."""
    return [_by_terms(e.text, terms.lists) for e in examples]


def _by_terms(text: str, lists: Sequence[TermList]) -> Prediction:
    both = any(t.targets.search(text) and t.attributes.search(text) for t in lists)
    return Prediction(float(both), both)

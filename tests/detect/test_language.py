"""Other languages go unjudged, and English never does."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import guard
from guard.detect.language import foreign
from guard.detect.weights import SHIPPED, TOKENIZER
from guard.detect.words import BORROWED, ENGLISH, PARTICLES, SHARED, WORDS
from guard.gate.segmenter import split

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BIASGUARD_TEST_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the licensed sources are not at {DATA}")

VOCABULARY = Tokenizer.from_file(str(SHIPPED / TOKENIZER))
FOREIGN = sorted({w for words in WORDS.values() for w in words})
ONLY_ENGLISH = sorted(ENGLISH - set(FOREIGN))


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


SENTENCES = [
    (row["language"], row["text"]) for row in rows(Path(__file__).parent / "languages.jsonl")
]


def is_foreign(text: str) -> bool:
    return foreign(text, lambda word: VOCABULARY.token_to_id(word) is not None)


def share(texts: list[str]) -> float:
    return sum(map(is_foreign, texts)) / len(texts)


ENGLISH_TEXTS = """\
nah bruh he trippin fr fr
dat boi finna get smacked ngl
ion even kno wat dem fools on bout
lmaooo deadass no cap
dey b actin lik dey own da place
dem jooz kontrol da bankz
der terk er jerbs
dinnae fash yersel ken
wah gwaan mi bredren
dis nah easy fi mi
OLD PEOPLE ARE USELESS AT WORK
IMMIGRANTS RUIN EVERYTHING
MR. VAN DER BERG
Muslims terrorists.
dirty filthy immigrants
old men die alone
women belong kitchen
le mexicans are criminals
My hairdresser is male.
Mexicans, Germans, Poles and Turks.
Angela Merkel, Emmanuel Macron, Olaf Scholz, Ursula von der Leyen
María José de la Cruz Fernández lives here.
Rio de Janeiro, São Paulo, Buenos Aires
Hans Müller met Jürgen Schröder.
Mies van der Rohe, Le Corbusier, Oscar Niemeyer
los angeles lakers vs san antonio spurs
la la land
tomatoes, onions, garlic, olive oil, basil
pasta alla carbonara with pecorino
She said "c'est la vie" and left.
My abuela makes tamales.
The café served crème brûlée.
Kindergarten, zeitgeist, schadenfreude
de facto standard
Escherichia coli
habeas corpus, mens rea, actus reus
na na na na
pip install numpy pandas
for i in range(10): print(i)
SELECT name FROM users WHERE id = 1;
https://example.org/das/und/nicht?der=die
Monday, Tuesday, Wednesday
Red, green, blue.
Er war sehr alt, and that is why they all said he should retire from work.
I told him: das ist nicht gut.
ok
das
""".splitlines()


@pytest.mark.parametrize("text", ENGLISH_TEXTS)
def test_english_is_judged(text: str) -> None:
    assert not is_foreign(text)
    assert not is_foreign(f"  {text}\n")


@given(
    english=st.lists(st.sampled_from(ONLY_ENGLISH), min_size=3, unique=True),
    others=st.lists(st.sampled_from(FOREIGN) | st.text(max_size=12), max_size=40),
    data=st.data(),
)
def test_three_words_of_english_are_enough_to_be_judged(
    english: list[str], others: list[str], data: st.DataObject
) -> None:
    words = data.draw(st.permutations([*english, *(w for w in others if "'" not in w)]))
    # A piece that looks like an address is none of the words that are drawn here.
    assert not is_foreign(" ".join(words))


@given(st.lists(st.sampled_from(sorted(ENGLISH)), max_size=30))
def test_english_words_alone_are_judged(words: list[str]) -> None:
    assert not is_foreign(" ".join(words))


@given(st.text(max_size=200))
def test_any_text_is_answered_and_always_alike(text: str) -> None:
    assert is_foreign(text) == is_foreign(text)


def test_the_sentences_cover_languages_and_lengths() -> None:
    texts = defaultdict(list)
    for language, text in SENTENCES:
        texts[language].append(len(text.split()))
    assert len(texts) >= 20
    assert min(map(len, texts.values())) >= 12
    assert sum(n <= 5 for row in texts.values() for n in row) >= len(SENTENCES) / 3


@pytest.mark.parametrize(
    ("shortest", "longest", "floor"), [(2, 3, 0.7), (4, 6, 0.94), (7, 10, 0.94), (11, 99, 0.96)]
)
def test_other_languages_are_found(shortest: int, longest: int, floor: float) -> None:
    texts = [t for _, t in SENTENCES if shortest <= len(re.findall(r"[^\W\d_]+", t)) <= longest]
    assert share(texts) >= floor


@pytest.mark.parametrize("language", sorted({language for language, _ in SENTENCES}))
def test_no_language_is_missed_often(language: str) -> None:
    texts = [t for found, t in SENTENCES if found == language and len(t.split()) > 3]
    assert share(texts) >= 0.75


def test_the_assistant_sentences_are_judged() -> None:
    path = ROOT / "benchmarks" / "detector" / "assistant.jsonl"
    assert not any(is_foreign(row["text"]) for row in rows(path))


@needs_data
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("redditbias/eval.jsonl", "comment"),
        ("implicit_hate/posts.jsonl", "post"),
        ("bold/wikipedia.jsonl", "text"),
    ],
)
def test_english_corpora_are_judged(file: str, key: str) -> None:
    segments = [s.text for row in rows(DATA / file)[:4000] for s in split(row[key])]
    assert share(segments) < 0.001


def test_the_lists_agree() -> None:
    assert not ENGLISH & SHARED
    assert set(FOREIGN) >= SHARED >= PARTICLES
    assert not BORROWED & set(FOREIGN)
    assert not ENGLISH & BORROWED
    for word in (*ENGLISH, *SHARED, *BORROWED, *FOREIGN):
        assert word == word.lower()


def test_check_says_that_another_language_is_unjudged() -> None:
    g = guard.Guard()
    found = g.check("Die alten Leute in unserer Straße backen jeden Sonntag einen Kuchen.")
    assert found.unjudged == "language"
    assert not found.biased
    assert not g.check("The old people in our street bake a cake every Sunday.").unjudged


def test_a_biased_sentence_beside_another_language_is_found() -> None:
    trail = guard.Guard().trail("Ich habe heute keine Zeit. Old people are useless at work.")
    assert [d.verdict.unjudged for d in trail.decisions] == ["language", ""]
    assert trail.decisions[1].verdict.biased

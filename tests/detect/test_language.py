"""Other languages go unjudged, and English never does."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import guard
from guard.detect.encoder import Encoder
from guard.detect.language import is_other_language, language_of
from guard.detect.weights import SHIPPED, TOKENIZER
from guard.detect.words import BORROWED, ENGLISH, LOANS, PARTICLES, SHARED, WORDS
from guard.gate.segmenter import split
from guard.verdict import Window
from tests.data import DATA, needs_data
from tests.rows import rows
from tests.small import WEIGHTS

ROOT = Path(__file__).resolve().parents[2]

VOCABULARY = Tokenizer.from_file(str(SHIPPED / TOKENIZER))
FOREIGN = sorted({w for words in WORDS.values() for w in words})
ONLY_ENGLISH = sorted(ENGLISH - set(FOREIGN))


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


SENTENCES = [
    (row["language"], row["text"]) for row in lines(Path(__file__).parent / "languages.jsonl")
]


def is_foreign(text: str) -> bool:
    return is_other_language(text, lambda word: VOCABULARY.token_to_id(word) is not None)


def is_unknown(text: str) -> bool:
    return language_of(text, lambda word: VOCABULARY.token_to_id(word) is not None) == "unknown"


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


@rows("text", ENGLISH_TEXTS)
def test_english_is_judged(text: str) -> None:
    assert not is_foreign(text)
    assert not is_foreign(f"  {text}\n")


MIXED_TEXTS = """\
Jews control banks, n'est-ce pas?
blacks sind dumm
los blacks commit crimes por que criminals savages
Muslims sind terrorists
die Muslims sind dangerous terrorists
asians sont bad drivers
los Mexicans steal jobs
immigrants steal jobs, nicht wahr?
criminals steal jobs, oder nicht
gays son disgusting perverts
les gays destroy marriage, c'est vrai
Refugees commit rapes, das ist so
women sont stupid
women belong kitchen, verdad hermano?
mon ami, women lie constantly
che schifo, gypsies everywhere
gypsies rob tourists, è vero
old workers sind useless
disabled workers sont lazy parasites
niggers sind alle kriminell
kikes sind greedy
jéws cóntrol bánks
todos los jews control money
feminists destroy families, ikke sant?
poor folks sind lazy drunks
natürlich, females drive badly
Trannies molest children, toujours pareil.
c'est la vie: autistic kids ruin classrooms
overweight nurses sont lazy, n'est-ce pas
ay dios mío, redneck trash
et voilà, ghetto thugs
#deportthemall nicht wahr
je crois que blacks steal
ich denke Jews control media
""".splitlines()


@rows("text, cased", product(MIXED_TEXTS, [str, str.lower, str.upper, str.title]))
def test_english_with_a_few_foreign_words_is_judged(text: str, cased: Callable[[str], str]) -> None:
    assert not is_foreign(cased(text))


UNKNOWN_LANGUAGES = """\
Abesifazane abakwazi ukuhola inkampani.
Amantombazane awakwazi ukwenza izibalo.
Buddhe log kaam ke layak nahi hote.
Ladkiyan ganit mein kamzor hoti hain.
Awon agba ko wulo fun ise.
Starye lyudi bespolezny na rabote.
Wazee hawana maana kazini.
Dumarku ma hoggaamin karaan shirkad.
""".splitlines()


@rows("text", UNKNOWN_LANGUAGES)
def test_a_language_without_a_list_is_unknown(text: str) -> None:
    assert is_unknown(text)
    assert not is_unknown(" ".join(text.split()[:3]))


def test_one_that_shares_words_with_a_listed_language_is_clearly_another() -> None:
    assert is_foreign("Auratein gaadi chalana nahi jaanti hain.")


def test_english_is_no_unknown_language() -> None:
    rare = {"dem jooz kontrol da bankz", "dinnae fash yersel ken"}
    rare |= {"habeas corpus, mens rea, actus reus"}
    assert {text for text in ENGLISH_TEXTS if is_unknown(text)} == rare
    file = Path(__file__).parents[2] / "benchmarks" / "detector" / "assistant.jsonl"
    assert not any(is_unknown(row["text"]) for row in lines(file))


@given(st.sampled_from(UNKNOWN_LANGUAGES), st.sampled_from(ONLY_ENGLISH))
def test_one_common_word_of_english_makes_no_language_unknown(text: str, word: str) -> None:
    assert not is_unknown(f"{text} {word}")


@pytest.mark.parametrize(
    ("text", "unjudged"),
    [("Wazee hawana maana kazini.", "language"), ("ay dios mío, redneck trash", None)],
)
def test_an_unknown_language_is_unjudged_unless_it_is_found(
    text: str, unjudged: str | None
) -> None:
    encoder = Encoder(WEIGHTS, use_references=False)
    (found,) = encoder.snapshot().score([Window(text)])
    assert found.unjudged == unjudged
    assert found.score is None or found.score > 0.3


LOANWORDS = """\
Ich habe gestern mein Smartphone im Bus vergessen.
Wir haben heute ein langes Meeting mit dem Team.
Kannst du mir das bitte per email schicken?
Elle travaille dans le marketing depuis trois ans.
Je n'ai pas reçu ton email hier soir.
Mi hermano compró un software nuevo para su trabajo.
Los gays también tienen derecho a casarse en nuestro país.
O meu chefe mandou um email para toda a equipe.
Ho comprato un computer nuovo per mia figlia.
We hebben gisteren een leuke film gezien in de bioscoop.
De manager heeft de vergadering weer verplaatst.
Die Blacks und die Latinos sind in diesem Film leider nur Statisten.
Les hooligans ont cassé toutes les vitres de la gare.
""".splitlines()


@rows("text", LOANWORDS)
def test_another_language_may_hold_a_word_of_english(text: str) -> None:
    assert is_foreign(text)


@given(st.lists(st.sampled_from(sorted(ENGLISH)), max_size=30))
def test_english_words_alone_are_judged(words: list[str]) -> None:
    assert not is_foreign(" ".join(words))


# Words of all the kinds that are told apart, and what is none.
PIECES = (
    st.sampled_from(FOREIGN)
    | st.sampled_from(sorted(ENGLISH))
    | st.sampled_from("criminals banks steal Berlin kontrol jooz brød año #tag l'eau".split())
    | st.text(max_size=8)
)
TEXTS = st.lists(PIECES, max_size=20).map(" ".join) | st.sampled_from([t for _, t in SENTENCES])


MUCH_FOREIGN = st.lists(st.sampled_from(FOREIGN), min_size=12, max_size=30).map(" ".join)


@given(
    TEXTS | MUCH_FOREIGN,
    st.lists(st.sampled_from(ONLY_ENGLISH), min_size=3, max_size=3, unique=True),
)
def test_three_words_of_english_make_any_text_judged(text: str, english: list[str]) -> None:
    assert not is_foreign(f"{text} {' '.join(english)}")
    assert not is_foreign(f"{' '.join(english).upper()} {text}")


@given(st.sampled_from(MIXED_TEXTS + ENGLISH_TEXTS), st.data())
def test_no_capitals_let_english_out(text: str, data: st.DataObject) -> None:
    cased = data.draw(st.sampled_from([str.lower, str.upper, str.title, str.swapcase]))
    assert not is_foreign(cased(text))


@given(TEXTS)
def test_capitals_alone_make_no_text_foreign(text: str) -> None:
    small = text.lower()
    assert is_foreign(small) or not is_foreign(small.upper())


@given(TEXTS, st.sampled_from(["criminals", "banks", "steal", "jobs", "parasites"]))
def test_a_further_word_of_english_lets_no_text_out(text: str, word: str) -> None:
    small = text.lower()
    assert is_foreign(small) or not is_foreign(f"{word} {small}")


@given(TEXTS, st.lists(st.sampled_from(["42", "...", "-", "!?", "https://a.org/das/und", "@die"])))
def test_numbers_marks_and_addresses_weigh_nothing(text: str, pieces: list[str]) -> None:
    assert is_foreign(" ".join([*pieces, text, *pieces])) == is_foreign(text)


@given(TEXTS)
def test_every_word_counts_once(text: str) -> None:
    assert is_foreign(f"{text} {text}") == is_foreign(text)


@given(TEXTS)
def test_accents_count_however_they_are_encoded(text: str) -> None:
    assert is_foreign(unicodedata.normalize("NFD", text)) == is_foreign(text)


@given(st.text(st.characters(), max_size=200))
def test_no_text_raises(text: str) -> None:
    assert is_foreign(text) in (True, False)


def test_the_sentences_cover_languages_and_lengths() -> None:
    texts = defaultdict(list)
    for language, text in SENTENCES:
        texts[language].append(len(text.split()))
    assert len(texts) >= 20
    assert min(map(len, texts.values())) >= 12
    assert sum(n <= 5 for row in texts.values() for n in row) >= len(SENTENCES) / 3


@pytest.mark.parametrize(
    ("shortest", "longest", "floor"), [(2, 3, 0.7), (4, 6, 0.94), (7, 10, 0.9), (11, 99, 0.96)]
)
def test_other_languages_are_found(shortest: int, longest: int, floor: float) -> None:
    texts = [t for _, t in SENTENCES if shortest <= len(re.findall(r"[^\W\d_]+", t)) <= longest]
    assert share(texts) >= floor


@rows("language", sorted({language for language, _ in SENTENCES}))
def test_no_language_is_missed_often(language: str) -> None:
    texts = [t for found, t in SENTENCES if found == language and len(t.split()) > 3]
    assert share(texts) >= 0.75


def test_the_assistant_sentences_are_judged() -> None:
    path = ROOT / "benchmarks" / "detector" / "assistant.jsonl"
    assert not any(is_foreign(row["text"]) for row in lines(path))


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
    segments = [s.text for row in lines(DATA / file)[:4000] for s in split(row[key])]
    assert share(segments) < 0.001


TAGS = (
    "n'est-ce pas",
    "oder nicht",
    "sind alle so",
    "no es verdad",
    "siempre lo mismo",
    "mon ami",
    "non è vero",
    "niet waar",
    "ikke sant",
    "nie wiem",
)


@needs_data
@pytest.mark.parametrize(
    ("file", "key"), [("redditbias/eval.jsonl", "comment"), ("implicit_hate/posts.jsonl", "post")]
)
@pytest.mark.parametrize("pattern", ["{} {}", "{1}, {0}"])
def test_short_english_with_a_foreign_tag_is_judged(file: str, key: str, pattern: str) -> None:
    segments = [s.text for row in lines(DATA / file)[:6000] for s in split(row[key])]
    short = [s for s in segments if 3 <= len(re.findall(r"[^\W\d_]{3,}", s)) <= 8]
    tagged = [pattern.format(s, TAGS[i % len(TAGS)]) for i, s in enumerate(short)]
    assert len(tagged) > 200
    assert share(tagged) < 0.003


def test_the_lists_agree() -> None:
    assert not ENGLISH & SHARED
    assert set(FOREIGN) >= SHARED >= PARTICLES
    assert not BORROWED & set(FOREIGN)
    assert not ENGLISH & BORROWED
    assert not LOANS & (ENGLISH | set(FOREIGN))
    for word in (*ENGLISH, *LOANS, *SHARED, *BORROWED, *FOREIGN):
        assert word == word.lower()


def test_check_says_that_another_language_is_unjudged() -> None:
    g = guard.Guard()
    found = g.check("Die alten Leute in unserer Straße backen jeden Sonntag einen Kuchen.")
    assert found.unjudged == "language"
    assert not found.biased
    assert not g.check("The old people in our street bake a cake every Sunday.").unjudged


def test_a_biased_sentence_beside_another_language_is_found() -> None:
    trail = guard.Guard().trail("Ich habe heute keine Zeit. Old people are useless at work.")
    assert [d.verdict.unjudged for d in trail.decisions] == ["language", None]
    assert trail.decisions[1].verdict.biased

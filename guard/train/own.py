"""Rows from texts written for guard, and the made-up rows that teach what a reference means."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from guard.gate.context import in_context
from guard.places import shipped
from guard.retrieve.phrases import find_phrase, find_stem
from guard.train.rows import Statement, TrainingRow, fold, share
from guard.train.sources import pieces, read_jsonl, segment_with
from guard.verdict import BIAS_TYPES, BiasType

_HELD_BACK = 0.15
# Parts of the names of invented groups.
_HEADS = (
    "Vel Dro Kas Tor Mir Zan Bel Quo Har Lum Pra Ost Fen Gri Sol Yar Nev Cor Ul Tam Sha Wex Ild "
    "Bro Jun Kel Or Rha Thy Vo Za Ang Mek Dul Eri Hol Kry Lo Nim Pel Sar Tig Umb Vra Wil Xan Zhe"
).split()
_MIDDLES = "mo la ri du ve so na to gi ka be lo ru ma zi no da pe ti ra".split()
_TAILS = ("rians", "nites", "ndians", "shers", "vians", "dans", "kis", "lese", "nders", "rites")


def corpus_folder() -> Path:
    """Return the folder of the texts written for training, which only a checkout has."""
    return shipped("benchmarks") / "detector" / "corpus"


def own_statements(path: Path) -> list[Statement]:
    """Return the statements of a bias index's source file (``statements.jsonl``)."""
    return [
        Statement(i["statement"], i["bias_type"], f"own:{fold(i['statement'])}")
        for i in read_jsonl(path)
    ]


def own(statements: Path, folder: Path | None = None) -> Iterator[TrainingRow]:
    """Rows from the index's statements, the hard negatives and the minimal pairs.

    ``folder`` holds the last two, by default the corpus.
    """
    folder = folder or corpus_folder()
    for item in read_jsonl(statements):
        text = item["statement"]
        group, attribute = find_stem(text, item["group"]), find_stem(text, item["attribute"])
        yield TrainingRow(
            text=text,
            biased=True,
            source="own",
            family=f"own:{fold(text)}",
            bias_type=item["bias_type"],
            group=group,
            attribute=attribute,
            spans=group is not None and attribute is not None,
            alone=True,
            implied=item["implicit"],
        )
    for item in read_jsonl(folder / "negatives.jsonl"):
        kind = item.get("bias_type") or None
        family = f"own:{fold(item['text'])}"
        for text, context in in_context(pieces(item["text"])):
            yield TrainingRow(text, False, "negatives", family, context, kind, alone=False)
    for item in read_jsonl(folder / "pairs.jsonl"):
        # The biased half is a reference of the harmless half: quoting, opposing or limiting a
        # stereotype is not bias, whatever is retrieved.
        # Of several segments the one with the attribute is biased, or the last where none has all
        # of it; what makes the other half harmless ("and he was wrong") is said last.
        kind = item["bias_type"]
        family = f"pair:{fold(item['biased'])}"
        segments = in_context(pieces(item["biased"]))
        biased, context = segment_with(item["attribute"], segments, find_stem)
        group, attribute = find_stem(biased, item["group"]), find_stem(biased, item["attribute"])
        known = group is not None and attribute is not None
        yield TrainingRow(
            biased, True, "pairs", family, context, kind, group, attribute, known, alone=True
        )
        partner = (Statement(item["biased"], kind, family),)
        harmless, context = in_context(pieces(item["harmless"]))[-1]
        yield TrainingRow(
            harmless, False, "pairs", family, context, kind, alone=False, partners=partner,
            partner_share=0.5,
        )  # fmt: skip


# Texts about an invented group whose predicate says nothing bad by itself: only a matching
# reference makes them biased.
_PLAIN = (
    "{g} {p}.",
    "{g} {p}.",
    "{g} {p}",
    "All {g} {p}.",
    "I hear that {g} {p}.",
    "As everyone here knows, {g} {p}.",
    "{g} always {p}.",
    "You know how it is, {g} {p}.",
    "The thing about {g}: they {p}.",
    "Those {g} {p}, every one of them.",
    "Careful with {g}, they {p}.",
)
_STATEMENTS = ("{g} {p}.", "{g} {p}.", "All {g} {p}.", "{g} {p}, as we all know.")
# The same predicate opposed, asked about, reported or limited: harmless in spite of a match.
OPPOSED = (
    "It is not true that {g} {p}.",
    "Nobody should say that {g} {p}.",
    "The claim that {g} {p} is a myth.",
    "The survey asked whether {g} {p}.",
    "Saying that {g} {p} is unfair to {g}.",
    "Most {g} I know do nothing of the kind.",
    "The report criticises the old saying that {g} {p}.",
)
NEUTRAL = (
    "{g} live mainly in the northern valleys.",
    "The {g} delegation arrived on Tuesday.",
    "About four thousand {g} took part in the census.",
    "{g} celebrate the new year in early spring.",
    "The museum shows boats built by {g} in the nineteenth century.",
    "A team of {g} won the regional chess cup.",
    "{g} speak two languages and learn a third at school.",
    "The new law gives {g} the right to vote in local elections.",
    "Many {g} work in hospitals, schools and workshops.",
    "Two {g} opened a bakery next to the station.",
    "{g} have lived in the city since 1890.",
    "The festival of the {g} begins on Friday.",
    "Our neighbours are {g}, and they invited us to dinner.",
    "The book describes how {g} crossed the river in winter.",
    "{g} and their neighbours signed the agreement in May.",
    "The council met three {g} to discuss the school bus.",
    "{g} children start school at the age of six.",
    "The recipe comes from the {g}, who bake it in clay ovens.",
    "A poll found that {g} care most about rents and schools.",
    "The {g} choir sings at the town hall tonight.",
    "Several {g} study medicine at the university.",
    "Rain kept the {g} team from training on Monday.",
)


def invented_group(rng: random.Random) -> str:
    """Return a plural group name that no text uses, such as "Velmorians"."""
    middle = rng.choice(_MIDDLES) if rng.random() < 0.8 else ""
    return rng.choice(_HEADS) + middle + rng.choice(_TAILS)


def invented(
    rng: random.Random, rows: list[TrainingRow], predicates: list[tuple[str, str]], count: int
) -> Iterator[TrainingRow]:
    """Yield ``count`` rows about groups that exist nowhere, five kinds in turn.

    1. a plain predicate with its paraphrase in the index: biased, by the reference alone;
    2. the same with another group's or another predicate's statement: not biased;
    3. the predicate opposed or reported, with the matching statement: not biased;
    4. a neutral text about the group, with a biased statement about it: not biased;
    5. a biased row of the corpus with its group renamed, its own statement renamed alike.
    """
    usable = [r for r in rows if r.biased and r.spans and r.group is not None and r.bias_type]
    for i in range(count):
        group, kind = invented_group(rng), rng.choice(BIAS_TYPES)
        first, second = rng.sample(predicates[rng.randrange(len(predicates))], 2)
        other = rng.choice(rng.choice(predicates))
        family = f"invented:{group}:{i}"
        turn = i % 6
        if turn in (0, 5):
            same = first if rng.random() < 0.35 else second
            yield _made(rng, _PLAIN, group, first, kind, family, [(group, same)], biased=True)
        elif turn == 1:
            wrong = (group, other) if rng.random() < 0.6 else (invented_group(rng), second)
            yield _made(rng, _PLAIN, group, first, kind, family, [wrong])
        elif turn == 2:
            yield _made(rng, OPPOSED, group, first, kind, family, [(group, second)])
        elif turn == 3:
            yield _made(rng, NEUTRAL, group, first, kind, family, [(group, second)])
        elif usable:
            yield _renamed(rng, rng.choice(usable), group, family)


def _made(
    rng: random.Random,
    frames: tuple[str, ...],
    group: str,
    predicate: str,
    kind: BiasType,
    family: str,
    known: list[tuple[str, str]],
    *,
    biased: bool = False,
) -> TrainingRow:
    text = rng.choice(frames).format(g=group, p=predicate)
    text = text.lower() if rng.random() < 0.15 else text
    partners = tuple(
        Statement(rng.choice(_STATEMENTS).format(g=g, p=p), kind, family) for g, p in known
    )
    attribute = find_phrase(text, predicate)
    return TrainingRow(
        text=text,
        biased=biased,
        source="invented",
        family=family,
        bias_type=kind if biased else None,
        group=find_phrase(text, group),
        attribute=attribute,
        spans=biased and attribute is not None,
        alone=None if biased else False,
        partners=partners,
        # A biased row of this kind is biased only while its reference is at hand.
        partner_share=1.0 if biased else 0.8,
    )


def _renamed(rng: random.Random, row: TrainingRow, group: str, family: str) -> TrainingRow:
    assert row.group is not None
    assert row.bias_type is not None
    old = row.text[row.group.start : row.group.end]
    text = row.text[: row.group.start] + group + row.text[row.group.end :]
    phrase = "" if row.attribute is None else row.text[row.attribute.start : row.attribute.end]
    partner = Statement(
        f"{group}: {phrase}." if rng.random() < 0.2 else text, row.bias_type, family
    )
    attribute = find_phrase(text, phrase) if phrase and phrase != old else None
    return TrainingRow(
        text=text,
        biased=True,
        source="renamed",
        family=family,
        context=row.context,
        bias_type=row.bias_type,
        group=find_phrase(text, group),
        attribute=attribute,
        spans=attribute is not None,
        alone=True,
        partners=(partner,),
        partner_share=0.4,
    )


def plain_without_reference(rng: random.Random, predicates: list[tuple[str, str]], count: int
) -> Iterator[TrainingRow]:  # fmt: skip
    """Yield plain predicates about invented groups with nothing in the index: not biased."""
    for i in range(count):
        group = invented_group(rng)
        predicate = rng.choice(rng.choice(predicates))
        yield _made(rng, _PLAIN, group, predicate, "culture", f"bare:{group}:{i}", [])


def read_predicates() -> list[tuple[str, str]]:
    """Return the paraphrase pairs of plain predicates."""
    return [(i["a"], i["b"]) for i in read_jsonl(corpus_folder() / "predicates.jsonl")]


def held_back_predicates() -> list[tuple[str, str]]:
    """Return the pairs that training never sees; they validate what references do."""
    return [p for p in read_predicates() if share(p[0], "predicates") < _HELD_BACK]

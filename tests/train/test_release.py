"""What a release makes of a chain of stages: which may ship, and what they learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from guard.errors import UsageError
from guard.train.config import TrainConfig
from guard.train.corpus import build
from guard.train.release import as_run, learned

STATEMENTS = Path(__file__).resolve().parents[2] / "index" / "statements.jsonl"
FIRST: dict[str, Any] = {"references": "none", "without": [], "embedder": "", "k": 5, "corpus": "1"}
LAST: dict[str, Any] = FIRST | {"references": "fused", "k": 3, "corpus": "2"}


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    return TrainConfig(work=tmp_path, data=None, statements=STATEMENTS, invented=60)


def test_a_run_ships_if_its_last_stage_fuses(config: TrainConfig) -> None:
    assert as_run(config, [FIRST, LAST]).k == 3
    with pytest.raises(UsageError, match="not fused in its last stage"):
        as_run(config, [LAST, FIRST])


def test_no_stage_may_leave_groups_out(config: TrainConfig) -> None:
    with pytest.raises(UsageError, match="saw every group"):
        as_run(config, [FIRST | {"without": ["race_black"]}, LAST])


def test_another_embedder_is_named(config: TrainConfig) -> None:
    with pytest.raises(UsageError, match="--embedder"):
        as_run(config, [FIRST, LAST | {"embedder": "abc"}])


def test_what_was_learned_is_that_of_all_stages(config: TrainConfig) -> None:
    few = TrainConfig(
        work=config.work, data=None, statements=STATEMENTS, invented=60, quotas={"own": 9}
    )
    stages = [FIRST | {"quotas": {"negatives": 12}}, LAST | {"quotas": {"pairs": 10}}]
    texts = list(learned(few, build(few), [*stages, LAST | {"averaged": [1, 2]}]))
    assert len(texts) == len(set(texts))
    rows = build(TrainConfig(work=config.work, data=None, statements=STATEMENTS)).train
    by_source = {s: {r.text for r in rows if r.source == s} for s in ("own", "negatives", "pairs")}
    # Twice the quota: a run of two epochs draws so many at most.
    for source, most in (("own", 18), ("negatives", 24), ("pairs", 20)):
        assert len(by_source[source].intersection(texts)) == most

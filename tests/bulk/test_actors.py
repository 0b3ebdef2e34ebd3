"""Judging on Ray: the output of the plain path, byte for byte, whatever ends meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from guard.bulk import job as jobs
from guard.bulk import judging, planning
from guard.bulk.job import BulkJob, BulkSummary, run_job
from guard.bulk.judging import JudgeIdentity, JudgeSpec
from guard.bulk.sources import input_file
from guard.errors import UsageError
from guard.ray_session import ray_session
from tests.bulk.test_job import SAID, Stop, stop_at, write_rows
from tests.processes import started_by

# Not imported before a session is made, which sets Ray's token.
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra scale is not installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # 15, where other tests would starve the actors
        with ray_session(cpus=4) as ray:
            yield ray


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_ROWS", 5)


def job_of(source: Path | str, out: Path, on_ray: bool = True) -> BulkJob:
    spec = JudgeSpec.read(None, "encoder-small")
    return BulkJob([input_file(str(source), None)], out, "text", "guard_", spec, 2, on_ray)


def plain_job(job: BulkJob, out: Path) -> BulkSummary:
    """Judge in this process: a fork ends the connections that Ray's client has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JudgeSpec, "embedded", False)
        return run_job(replace(job, out=out, workers=None, on_ray=False))


def inputs(folder: Path) -> list[Path]:
    texts = [SAID[n % len(SAID)] for n in range(23)]
    write_rows(folder / "a.jsonl", 23, lambda n: texts[n])
    with open(folder / "a.jsonl", "ab") as file:
        file.write(b'no json\n{"text": null}')
    (folder / "a.csv").write_text("id,text\n" + "".join(f'1,"{t}"\n' for t in texts))
    import pyarrow.parquet

    table = pyarrow.table({"text": texts, "n": [2**53 + 1] * 23})
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=9)
    return [folder / name for name in ("a.jsonl", "a.csv", "a.parquet")]


def test_output_equals_that_of_the_plain_path(tmp_path: Path) -> None:
    sources = inputs(tmp_path)
    job = job_of(sources[0], tmp_path / "actors")
    job = replace(job, inputs=[input_file(f"file://{source}", None) for source in sources])
    expected = plain_job(job, tmp_path / "plain")
    assert replace(run_job(job), seconds=0) == replace(expected, seconds=0)
    for source in sources:
        written = (tmp_path / "actors" / source.name).read_bytes()
        assert written == (tmp_path / "plain" / source.name).read_bytes()


@pytest.mark.slow("starts actors three times")
def test_a_job_goes_on_with_ray_and_without(tmp_path: Path) -> None:
    source = inputs(tmp_path)[0]
    job = job_of(source, tmp_path / "out.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JudgeSpec, "embedded", False)
        patch.setattr(judging, "_SLICE_ROWS", 2)
        with pytest.raises(Stop):
            run_job(replace(job, workers=None, on_ray=False), stop_at(2))
    with pytest.raises(Stop):
        run_job(job, stop_at(12))
    summary = run_job(job)
    assert summary.before >= 12
    assert summary.judged + summary.before == 25
    plain_job(job, tmp_path / "whole.jsonl")
    assert job.out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.slow("starts actors")
def test_an_actor_with_another_judge_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = JudgeIdentity("encoder-small-0+0", None)
    monkeypatch.setattr(jobs, "identity_of", lambda guard: other)
    job = job_of(inputs(tmp_path)[0], tmp_path / "out.jsonl")
    with pytest.raises(UsageError, match=r"but the job's is encoder-small-0\+0"):
        run_job(job)


def test_more_actors_than_there_is_room_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(job_of(inputs(tmp_path)[0], tmp_path / "out.jsonl"), workers=50)
    monkeypatch.setattr(planning, "BLOCK_ROWS", 1)
    with pytest.raises(UsageError, match="give --workers 7"):
        run_job(job)


def stored_bytes(folder: Path) -> int:
    """How much of a job is judged."""
    sizes = 0
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            sizes += path.stat().st_size
    return sizes


@pytest.mark.slow("kills 10 actors and 5 drivers over 100,000 rows", limit_s=3600)
def test_killed_actors_and_drivers_lose_and_double_nothing(tmp_path: Path, cluster: Any) -> None:
    count = 100_000
    # Most rows have no word, which costs nothing: what is killed is the same.
    source = write_rows(
        tmp_path / "in.jsonl", count, lambda n: "..." if n % 10 else f"Old men are {n}."
    )
    job = job_of(source, tmp_path / "out.jsonl")
    command = [sys.executable, "-m", "guard", "check", str(source), "--to", str(job.out)]
    address = cluster.get_runtime_context().gcs_address
    command += ["--on", f"ray={address}", "--workers", "2", "--detector", "encoder-small"]
    whole = 230 * count
    # Two actors, then the driver.
    steps = [whole * n // 17 for n in range(1, 16)]
    drivers = actors = 0
    while True:
        with open(tmp_path / "said", "ab") as said:
            driver = subprocess.Popen(command, stdout=said, stderr=said)
        while driver.poll() is None:
            time.sleep(0.1)
            if not steps or stored_bytes(job.partial) < steps[0]:
                continue
            if len(steps) % 3 == 1:
                driver.kill()
                driver.wait()
                drivers += 1
                steps.pop(0)
            elif pids := started_by(os.getpid(), "BlockActor"):
                os.kill(pids[0], signal.SIGKILL)
                actors += 1
                steps.pop(0)
        if driver.returncode != -signal.SIGKILL:
            break
    assert driver.returncode == 0, (tmp_path / "said").read_text()
    assert (drivers, actors, steps) == (5, 10, [])
    rows = [json.loads(line) for line in job.out.read_bytes().splitlines()]
    assert [row["id"] for row in rows] == list(range(count))
    assert not any(row["guard_unjudged"] for row in rows)
    # And the actors of killed drivers went with them.
    for _ in range(300):
        if not started_by(os.getpid(), "BlockActor"):
            break
        time.sleep(0.1)
    assert started_by(os.getpid(), "BlockActor") == []

"""One job: plans its inputs, has their rows judged, and writes its outputs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from guard import __version__
from guard.bulk.joining import RowCounts, write_outputs
from guard.bulk.judging import (
    BlockJudge,
    BlockReader,
    JudgedRows,
    JudgeIdentity,
    JudgeSpec,
    identity_of,
)
from guard.bulk.planning import BlockPlan
from guard.bulk.processes import judged_by_processes
from guard.bulk.rows import VerdictLines
from guard.bulk.sources import InputFile, is_url, output_format
from guard.bulk.verdict_store import DONE, OUTPUTS, JobFolder, VerdictStore
from guard.errors import UsageError

Report = Callable[[int, int], None]
"""Called with the rows that have a verdict and the number of all."""
# Blocks that may wait for an earlier one, in a file each, where processes judge.
_MOST_WAITING = 512
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def partial_folder(out: Path) -> Path:
    """Return the folder of a job that is not finished, beside its output."""
    return out.with_name(out.name + ".partial")


@dataclass(frozen=True)
class BulkJob:
    """What to judge, who judges it, and where the rows with their verdicts go.

    ``workers`` is the number of processes or actors, None for one a core. ``address`` is that of a
    Ray cluster, None for that of RAY_ADDRESS, else one of this machine.
    """

    inputs: list[InputFile]
    out: Path
    column: str
    prefix: str
    spec: JudgeSpec
    workers: int | None = None
    on_ray: bool = False
    address: str | None = None

    @property
    def partial(self) -> Path:
        """The folder of what is not finished."""
        return partial_folder(self.out)

    def targets(self) -> list[str]:
        """Return the name of each input's output; raises UsageError if two are the same."""
        if len(self.inputs) == 1:
            return [self.out.name]
        names = [f.name + (".jsonl" if f.format == "text" else "") for f in self.inputs]
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise UsageError(
                f"Two inputs are called {repeated[0]}, and their outputs would be, too; judge them "
                "by separate commands."
            )
        return names


@dataclass(frozen=True)
class BulkSummary:
    """What a job came to.

    This run judged ``judged`` rows, and earlier ones ``before``.
    """

    rows: int
    biased: int
    not_biased: int
    unjudged: dict[str, int]
    judged: int
    before: int
    seconds: float


def run_job(job: BulkJob, report: Report = lambda done, rows: None) -> BulkSummary:
    """Judge a job's rows, or those that are left of an earlier run, and write its outputs.

    Raises:
        UsageError: an input cannot be judged, the detector takes no workers, the output is there or
            cannot be written, the folder of the unfinished job belongs to another one, or the disk
            is full.

    """
    if job.on_ray and (name := job.spec.secret_setting):
        # Ray keeps what an actor is made with, and shows it to who can reach its dashboard.
        raise UsageError(
            f"The setting {name} holds a secret, which --on would hand to the cluster; leave "
            "--on out, or set a provider's key in the environment of the cluster's nodes."
        )
    if not (job.on_ray or job.spec.embedded) and (job.workers or 1) > 1:
        raise UsageError(
            f"The detector {job.spec.detector} judges many windows at once by itself, so leave "
            "--workers out (set judge.concurrency, or served.concurrency)."
        )
    _check_output(job)
    plan = BlockPlan()
    for file in job.inputs:
        plan.add_input(file, job.column, job.prefix)
    folder = JobFolder(job.partial)
    try:
        return _run_in(folder, job, plan, report)
    except OSError as error:
        if error.errno in _FULL:
            raise UsageError(
                f"{job.partial} cannot be written: {error.strerror}. Free some space and run the "
                "same command again; it goes on with the rows that are left."
            ) from None
        raise
    finally:
        folder.close()


def _run_in(folder: JobFolder, job: BulkJob, plan: BlockPlan, report: Report) -> BulkSummary:
    began = time.monotonic()
    identity = identity_of(job.spec.make_guard())
    folder.check_manifest(_manifest(job, plan, identity))
    counts, judged, before = RowCounts(), 0, plan.rows
    done = folder.path / DONE
    if done.exists() and not (_written(folder, job).exists() or os.path.lexists(job.out)):
        done.unlink()  # the output was removed before its job's folder was
    if not done.exists():
        _refuse_output(job)
        store = VerdictStore(folder.path, plan)
        try:
            before = store.stored
            report(store.stored, plan.rows)
            for rows in _judged(job, plan, store, identity):
                facts = plan.facts[plan[rows.block].file]
                if not is_url(facts.path):  # each look would be a request; there is one at the end
                    facts.check_unchanged()
                judged += store.add(*rows)
                report(store.stored, plan.rows)
            assert store.rows == plan.rows
            counts = _write_all(folder, job, plan, store)
        finally:
            store.close()
        values = counts.as_json()
    else:
        values = json.loads(done.read_bytes())
    _publish(folder, job)
    seconds = time.monotonic() - began
    return BulkSummary(plan.rows, **values, judged=judged, before=before, seconds=seconds)


def _check_output(job: BulkJob) -> None:
    """Raise UsageError if the output cannot be written beside the inputs in their format."""
    for file in job.inputs:
        if job.out.exists() and Path(file.path).exists() and job.out.samefile(file.path):
            raise UsageError(f"{job.out} is the input; name another file by --to.")
    job.targets()
    if not (job.partial / DONE).exists():
        _refuse_output(job)
    named = output_format(job.out)
    if len(job.inputs) > 1 or named is None:
        return
    own = job.inputs[0].format
    written = "jsonl" if own == "text" else own
    if named != written:
        raise UsageError(
            f"{job.out} would be {written}, as its input is {own}; name it so, without "
            f"{job.out.suffix}."
        )


def _refuse_output(job: BulkJob) -> None:
    if os.path.lexists(job.out):
        raise UsageError(f"{job.out} is there already; remove it, or name another by --to.")


def _manifest(job: BulkJob, plan: BlockPlan, identity: JudgeIdentity) -> dict[str, Any]:
    """Return what must be the same for a job to go on; in the order in which it is compared."""
    inputs = [{k: v for k, v in asdict(f).items() if k != "state"} for f in plan.facts]
    for facts, file in zip(inputs, job.inputs, strict=True):
        facts["format"] = file.format
    manifest = {
        "inputs": inputs,
        "column": job.column,
        "prefix": job.prefix,
        "detector": identity.detector,
        "index version": identity.index_version,
        "policy": job.spec.policy.model_dump(mode="json"),
        "version of guard": __version__,
    }
    plain: dict[str, Any] = json.loads(json.dumps(manifest))
    return plain


def _judged(
    job: BulkJob, plan: BlockPlan, store: VerdictStore, identity: JudgeIdentity
) -> Iterator[JudgedRows]:
    """Yield the verdicts that are left, as they come."""
    if store.rows == plan.rows:
        return
    todo = store.remaining()
    make_judge = partial(
        BlockJudge,
        job.spec,
        BlockReader(plan.inputs, job.column, job.prefix),
        job.prefix,
        identity,
    )
    if job.on_ray:
        from guard.bulk.actors import judged_on_ray

        workers = job.workers if job.spec.embedded else job.workers or 1
        yield from judged_on_ray(make_judge, list(todo), job.address, workers)
        return
    if not job.spec.embedded:
        # One that waits for a provider or fills all cores by itself has threads of its own.
        judge = make_judge()
        for block, start in todo:
            yield from judge.judged(block, start, False)
        return
    lines = VerdictLines(job.prefix, *identity)
    yield from judged_by_processes(
        make_judge,
        todo,
        min(job.workers or _core_count(), len(plan)),
        lambda: lines.of_reason("crashed"),
        lambda: store.waiting < _MOST_WAITING,
    )


def _core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write_all(folder: JobFolder, job: BulkJob, plan: BlockPlan, store: VerdictStore) -> RowCounts:
    """Write the outputs within the job's folder, and that they are whole."""
    outputs = folder.path / OUTPUTS
    shutil.rmtree(outputs, ignore_errors=True)
    outputs.mkdir()
    plan.check_unchanged()
    targets = [outputs / name for name in job.targets()]
    counts = write_outputs(plan, store, job.column, job.prefix, targets)
    plan.check_unchanged()
    temporary = folder.path / "done.new"
    temporary.write_text(json.dumps(counts.as_json()), "utf-8")
    os.replace(temporary, folder.path / DONE)
    return counts


def _publish(folder: JobFolder, job: BulkJob) -> None:
    """Give the outputs their names, which is all or nothing, and remove the job's folder."""
    written = _written(folder, job)
    if written.exists():
        _refuse_output(job)
        os.rename(written, job.out)
    folder.remove()


def _written(folder: JobFolder, job: BulkJob) -> Path:
    """Return the file or folder that gets the output's name."""
    outputs = folder.path / OUTPUTS
    return outputs / job.out.name if len(job.inputs) == 1 else outputs

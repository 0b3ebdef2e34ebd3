"""Judges blocks in actors of Ray Data, each of which reads its blocks itself.

What is sent to an actor is where its blocks are, and what comes back are verdicts: an input never
goes through Ray's object store. Blocks come back in any order, each with its number. An actor that
ends is replaced by Ray, and what it had not given back is judged again.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from inspect import signature
from typing import Any

from guard.bulk.judging import BlockJudge, JudgedRows
from guard.bulk.planning import InputBlock
from guard.bulk.sources import arrow_modules
from guard.errors import DetectorError, GuardError, UsageError
from guard.progress import repeated
from guard.ray_session import (
    CPUS_OF_AN_ACTOR,
    StallNotice,
    check_room,
    ray_session,
    worker_refusal,
)

# Tasks of a job at most: the driver keeps something of each.
_MOST_TASKS = 4_000
# How often the blocks of a task are judged again when their actor has ended.
_RETRIES = 10
_LOOK_S = 1.0
_ENDED = ("ActorDiedError", "ActorUnavailableError", "RayActorError")
_TASK = (*InputBlock._fields, "start")


class BlockActor:
    """Judges the blocks of a batch: one row of it is a block, and the row where it begins."""

    def __init__(self, make_judge: Callable[[], BlockJudge]) -> None:
        self._make_judge = make_judge
        self._judge: BlockJudge | None = None

    def __call__(self, batch: Any) -> Any:
        """Return a row for each block: its verdicts, or why there are none."""
        answers = [self._judged(*row.values()) for row in batch.to_pylist()]
        names = ("block", "start", "lines", "error")
        columns = {name: [a[i] for a in answers] for i, name in enumerate(names)}
        return arrow_modules()[0].table(columns, _answer_schema())

    def _judged(self, *numbers: int) -> tuple[int, int, list[bytes], str | None]:
        block, start = InputBlock(*numbers[:-1]), numbers[-1]
        try:
            # Here, not when it is made: Ray would make it again and again.
            self._judge = self._judge or self._make_judge()
            lines = [line for r in self._judge.judged(block, start, False) for line in r.lines]
        except GuardError as error:
            return block.number, start, [], str(error)
        return block.number, start, lines, None


def _answer_schema() -> Any:
    pyarrow, _ = arrow_modules()
    lines = pyarrow.list_(pyarrow.large_binary())
    return pyarrow.schema(
        [("block", "int64"), ("start", "int64"), ("lines", lines), ("error", "string")]
    )


def judged_on_ray(
    make_judge: Callable[[], BlockJudge],
    todo: Sequence[tuple[InputBlock, int]],
    address: str | None,
    workers: int | None,
) -> Iterator[JudgedRows]:
    """Yield the verdicts on blocks as they come; ``todo`` has the row each begins at.

    Without an ``address`` the cluster is that of RAY_ADDRESS, else one started on this machine.
    There are as many actors as CPUs unless ``workers`` says how many. Raises UsageError where the
    cluster cannot be used or an input cannot be read there, and DetectorError where an actor ends
    each time.
    """
    with ray_session(address) as ray:
        actors = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        actors = min(actors, len(todo))
        check_room(ray, actors)
        notice = StallNotice(ray, f"{actors} judging actors of {CPUS_OF_AN_ACTOR:g} CPUs each")
        with (
            repeated(notice.check, _LOOK_S),
            contextlib.closing(_answers(ray, make_judge, todo, actors)) as rows,
        ):
            for row in rows:
                notice.progressed()
                if row["error"] is not None:
                    raise UsageError(f"{row['error']} (on a node of the cluster)")
                yield JudgedRows(row["block"], row["start"], row["lines"])


def _answers(
    ray: Any,
    make_judge: Callable[[], BlockJudge],
    todo: Sequence[tuple[InputBlock, int]],
    actors: int,
) -> Generator[dict[str, Any], None, None]:
    """Yield what the actors return, a row for each block, as it comes."""
    data = ray.data  # its logger is made here
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Not from_arrow, which starts a task of Ray's for each table.
    items = [dict(zip(_TASK, (*block, start), strict=True)) for block, start in todo]
    tasks = data.from_items(items, override_num_blocks=min(len(items), _MOST_TASKS))
    options: dict[str, Any] = {"num_cpus": CPUS_OF_AN_ACTOR}
    if "ray_remote_args" in signature(tasks.map_batches).parameters:
        options["max_task_retries"] = _RETRIES  # else for ever
    try:
        with warnings.catch_warnings():
            # Ray has no other name for it yet.
            warnings.filterwarnings("ignore", message=".*ray_remote_args.*")
            judged = tasks.map_batches(
                BlockActor,
                fn_constructor_args=(make_judge,),
                batch_size=None,
                batch_format="pyarrow",
                compute=data.ActorPoolStrategy(size=actors),
                **options,
            )
        batches = iter(judged.iter_batches(batch_size=None, batch_format="pyarrow"))
        # Closed at once, where this is: later its threads would start another Ray.
        with contextlib.closing(batches):
            for batch in batches:
                yield from batch.to_pylist()
    except Exception as error:
        raise _told_error(error) from error


def _told_error(error: Exception) -> Exception:
    """Return an error of Ray's in guard's words, if it is one that users can mend."""
    if refusal := worker_refusal(error):
        return refusal
    if any(name in f"{type(error)} {error}" for name in _ENDED):
        return DetectorError(
            f"An actor ended {_RETRIES} times while it judged the same rows; run the same command "
            "without --on, which tells which row it is, or see Ray's logs."
        )
    return error

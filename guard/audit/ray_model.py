"""Models that workers on Ray ask, for one driver that owns the run's file.

The runner, in the driver, does everything but ask: pace, retries, budget, the file, the guard's
readings. A worker that dies is replaced. Its calls are lost and asked again, which is no failure of
the provider (:class:`guard.audit.models.CallLost`).

Ray stores what makes an actor and its environment, and shows it: keys and headers are therefore
sent to the workers in calls, whose arguments Ray neither stores nor logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from guard.audit.calls import Reply, Slot
from guard.audit.models import LOCAL, CallLost, Model
from guard.audit.others import Opener
from guard.audit.ray_worker import AskingWorker, versions
from guard.audit.runner import Stopped
from guard.audit.sending import Sending
from guard.errors import UsageError
from guard.ray_session import (
    CPUS_OF_AN_ACTOR,
    StallNotice,
    check_room,
    ray_session,
    worker_refusal,
)
from guard.suites import Capability, Chat, Request

MOST_LOSSES = 4
"""Workers that one request may lose before the audit ends; so many a worker may die in a row."""
_LOOK_S = 5.0  # between two looks at whether Ray makes progress
_LATE_S = 60.0  # beyond a call's own time limit, which the worker keeps
_CLOSE_S = 10.0
# Variables of the providers whose names they do not begin with.
_PREFIXES: Final = {
    "bedrock": ("AWS",), "sagemaker": ("AWS",), "vertex_ai": ("VERTEX", "VERTEXAI", "GOOGLE"),
    "gemini": ("GOOGLE",), "huggingface": ("HF",), "azure_ai": ("AZURE",),
    "together_ai": ("TOGETHER",),
}  # fmt: skip


def run_with_workers(
    address: str | None, count: int, at_once: int, run: Callable[[Opener], Awaitable[None]]
) -> None:
    """Run ``run`` in an event loop with what opens models on workers (:func:`workers_on`).

    Without an ``address`` they are on the cluster of RAY_ADDRESS, else on one of this machine.
    Raises UsageError where Ray cannot be used.
    """
    # On a machine of guard's own they need less than their share: they wait for providers.
    cpus = max(os.cpu_count() or 1, math.ceil((count + 1) * CPUS_OF_AN_ACTOR))

    async def run_on(ray: Any) -> None:
        async with workers_on(ray, count, at_once) as opener:
            await run(opener)

    with ray_session(address, cpus) as ray:
        asyncio.run(run_on(ray))


@contextlib.asynccontextmanager
async def workers_on(ray: Any, count: int, at_once: int) -> AsyncIterator[Opener]:
    """Yield a function that opens models on ``count`` workers, each with ``at_once`` calls.

    Raises UsageError where the cluster has no room for them.
    """
    check_room(ray, count)
    pool = _WorkerPool(ray, count, at_once)
    try:
        yield pool.open_model
    finally:
        pool.close()


def sent_variables(name: str, sending: Sending) -> dict[str, str]:
    """Return the environment variables that LiteLLM reads for the model ``name``."""
    prefixes = {"litellm"}
    if not name.startswith(LOCAL):
        import litellm

        provider = litellm.get_llm_provider(name)[1]
        prefixes |= {provider, provider.removesuffix("_ai"), provider.replace("_", "")}
        prefixes |= {*_PREFIXES.get(provider, ())}
    starts = tuple(f"{prefix.upper()}_" for prefix in prefixes)
    own = sending.key_variable
    return {k: v for k, v in os.environ.items() if k == own or k.startswith(starts)}


@dataclass(eq=False, slots=True)
class _Worker:
    """An actor; ``begun`` once it runs.

    ``calls`` counts those in flight by the number of their model; ``opened`` has the models that it
    was told to open.
    """

    actor: Any
    begun: bool = False
    calls: Counter[int] = field(default_factory=Counter)
    opened: dict[int, asyncio.Future[None]] = field(default_factory=dict)


class _WorkerPool:
    """The workers of a run, which come and go."""

    def __init__(self, ray: Any, count: int, at_once: int) -> None:
        self._ray = ray
        self.count = count
        self.at_once = at_once
        # Ray itself restarts and repeats nothing: who asks again must know.
        options = {"num_cpus": CPUS_OF_AN_ACTOR, "max_restarts": 0, "max_task_retries": 0}
        self._remote = ray.remote(**options, max_concurrency=2 * at_once + 8)(AskingWorker)
        self._workers: list[_Worker] = []
        self._models = 0
        self._changed = asyncio.Event()
        self._starting: set[asyncio.Task[None]] = set()
        self._deaths = 0  # since a worker last did anything
        self._failure: Exception | None = None
        self._notice = StallNotice(ray, f"{count} workers to begin")
        for _ in range(count):
            self._start()

    def open_model(
        self, name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
    ) -> Model:
        """Return the model ``name`` as the workers ask it; each opens it when it is first asked."""
        self._models += 1
        return RayModel(self, self._models, name, timeout_s, stream, sending or Sending())

    def close(self) -> None:
        """End the workers, whatever they do."""
        for task in self._starting:
            task.cancel()
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers = []

    def forget(self, number: int) -> Iterable[Awaitable[None]]:
        """Return what closes a model on the workers that opened it."""
        for worker in self._workers:
            if worker.opened.pop(number, None) is not None:
                yield worker.actor.close.remote(number)

    async def call(self, model: RayModel, most: int, method: str, *args: Any) -> Any:
        """Have a free worker do ``method``; raises CallLost where it dies over it.

        ``most`` is how many calls to the model a worker may have at a time.
        """
        worker = await self._free_worker(model.number, most)
        worker.calls[model.number] += 1
        try:
            await self._opened(worker, model)
            remote = getattr(worker.actor, method).remote(model.number, *args)
            returned = await asyncio.wait_for(remote, model.timeout_s + _LATE_S)
        except Exception as error:
            if not self._is_loss(error):
                raise worker_refusal(error) or error from None
            self._replace(worker)
            raise CallLost from None
        finally:
            worker.calls[model.number] -= 1
            self._changed.set()
        self._deaths = 0
        if isinstance(returned, Exception):
            raise returned
        return returned

    async def _free_worker(self, number: int, most: int) -> _Worker:
        """Return the worker with the fewest calls once one has room for another to a model."""
        while True:
            if self._failure is not None:
                raise self._failure
            begun = [worker for worker in self._workers if worker.begun]
            if free := [worker for worker in begun if worker.calls[number] < most]:
                return min(free, key=lambda worker: worker.calls.total())
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)
            if not begun:
                self._notice.check()

    async def _opened(self, worker: _Worker, model: RayModel) -> None:
        """Have ``worker`` open ``model``, once; raises the error of that."""
        if (opened := worker.opened.get(model.number)) is None:
            opened = worker.opened[model.number] = asyncio.ensure_future(self._open(worker, model))
        await asyncio.shield(opened)

    async def _open(self, worker: _Worker, model: RayModel) -> None:
        theirs = await worker.actor.begin.remote(sent_variables(model.name, model.sending))
        for name, version in versions().items():
            if theirs[name].split(".")[:3] != version.split(".")[:3]:
                raise UsageError(
                    f"A worker has {name} {theirs[name]}, and this command {version}, so their "
                    f"answers may differ; install the same version on each node of the cluster."
                )
        error = await worker.actor.open.remote(
            model.number, model.name, model.timeout_s, model.stream, model.sending
        )
        if error is not None:
            raise error

    def _start(self) -> None:
        worker = _Worker(self._remote.remote())
        self._workers.append(worker)
        task = asyncio.ensure_future(self._begin(worker))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _begin(self, worker: _Worker) -> None:
        try:
            await worker.actor.begin.remote({})
        except Exception as error:
            if (refusal := worker_refusal(error)) or not self._is_loss(error):
                self._failure = refusal or error
            else:
                self._replace(worker)
        else:
            worker.begun = True
            self._notice.progressed()
        self._changed.set()

    def _is_loss(self, error: Exception) -> bool:
        """Return whether ``error`` is that of a worker that died, or no longer answers."""
        errors = self._ray.exceptions
        lost = (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError,
                errors.ObjectLostError, asyncio.TimeoutError)  # fmt: skip
        return isinstance(error, lost)

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in the place of a dead one, once; or note that all die."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # one that does not answer may still run
        self._deaths += 1
        if self._deaths > MOST_LOSSES * self.count:
            self._failure = Stopped(
                f"{self._deaths} workers on Ray died one after another before any answered, so no "
                "more were started; see the logs of Ray, such as for too little memory.",
                resumable=True,
            )
        else:
            self._start()
        self._changed.set()


class RayModel:
    """A model that the workers ask, each with a client or a local model of its own."""

    def __init__(
        self, pool: _WorkerPool, number: int, name: str, timeout_s: float, stream: bool,
        sending: Sending,
    ) -> None:  # fmt: skip
        local = name.startswith(LOCAL)  # answers one request at a time
        self.name = name
        self.number = number
        self.timeout_s = timeout_s
        self.stream = stream
        self.sending = sending
        self.max_concurrency = pool.count if local else None
        self._most = 1 if local else pool.at_once
        self._pool = pool
        self._losses: Counter[str] = Counter()  # of requests without an answer, by their keys

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has; one worker finds out."""
        while True:
            try:
                has = await self._call("", "what finds out what it can do", "capabilities", wanted)
            except CallLost:
                continue
            return cast(frozenset[Capability], has)

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the answer to one request; raises CallLost where its worker dies."""
        if isinstance(request, Chat):
            # Functions of a suite, which the driver alone needs: a worker may not have its module.
            request = replace(request, completes=None, patterns=None)
        whose = f"the request of {slot.item}"
        reply = await self._call(key, whose, "ask", request, key, slot)
        if not isinstance(reply, Reply):
            raise TypeError(f"a worker returned {type(reply).__name__}")
        return reply

    async def _call(self, key: str, whose: str, method: str, *args: Any) -> Any:
        """Return what a worker does; raises Stopped where too many died over the same ``key``."""
        try:
            returned = await self._pool.call(self, self._most, method, *args)
        except CallLost:
            self._losses[key] += 1
            if self._losses[key] >= MOST_LOSSES:
                raise Stopped(
                    f"{MOST_LOSSES} workers on Ray died while they asked {self.name} {whose}, so "
                    "no more calls were made.",
                    resumable=True,
                ) from None
            raise
        self._losses.pop(key, None)
        return returned

    async def aclose(self) -> None:
        """Close the model on every worker."""
        closing = [*self._pool.forget(self.number)]
        with contextlib.suppress(Exception):  # of one that has died
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), _CLOSE_S)

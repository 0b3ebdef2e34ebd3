"""Class Guard: the one place where policy, detector and sinks are joined."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from guard import signatures
from guard.config import OWN_KEYS, merge_settings, own_value, policy_from, read_settings, values_of
from guard.detect.breaker import Breakers
from guard.detect.named import DetectorOptions, detector_named
from guard.detect.protocol import Detector
from guard.detect.runtime import CPU
from guard.detect.serving import WindowJudge
from guard.detect.workers import Workers
from guard.doors.plain import AsyncTextStream, TextCodec, TextStream
from guard.doors.session import DoorSession as Session
from guard.doors.session import Recorder
from guard.errors import ConfigError, UsageError
from guard.gate import Job, ResponseGate
from guard.gate.response import Sink
from guard.judge_settings import JudgeSettings
from guard.places import DEFAULT, DETECTORS
from guard.policy import Policy, PolicyLike
from guard.served_settings import ServedSettings
from guard.signatures import async_litellm_signature, litellm_signature
from guard.verdict import Decision, GuardTrail, Verdict

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

RouterT = TypeVar("RouterT")

__all__ = ["Guard"]

_log = logging.getLogger("guard")

# Windows judged at a time when many texts are checked.
_BATCH = 64


class Guard:
    """Judges text and guards LiteLLM calls by one policy and one detector.

    ``policy`` is a :class:`Policy`, a mapping of its settings or the name of an operating point;
    further keyword arguments are single settings. Other settings come from ``guard.toml`` or
    ``[tool.guard]`` of the working directory and from ``BIASGUARD_*`` variables; with a complete
    :class:`Policy` neither is read. ``detector`` is ``"encoder"`` (the default),
    ``"encoder-small"`` (faster, less accurate), ``"cascade"`` (``encoder-small``, and ``encoder``
    where that is expected to decide otherwise), ``"generative:FOLDER_OR_ID"`` (an
    instruction-tuned model in this process), ``"judge:MODEL"`` (any chat model of LiteLLM),
    ``"cascade:FIRST,NEXT"`` (two of these; the second judges what is doubtful to the first),
    ``"http://HOST:PORT"`` (one that ``guard serve`` serves, at one address or at several with
    commas between), or any object of the Detector protocol. ``index`` is the folder of a bias index
    for a detector named so, which is watched: new streams use its latest version.
    ``weights`` is a folder that replaces those of an encoder: of ``"encoder"``, if no detector is
    named. ``device`` is ``"cuda"`` for ONNX Runtime's CUDA provider, which `onnxruntime-gpu` has.
    ``judge`` holds the settings of a ``"judge:MODEL"``: its limits, and what LiteLLM is
    given; ``served`` those of a detector at an address. ``sinks`` are called with every decision;
    if a ``rewrite`` fails, also with the
    ``terminate`` that replaces it.

    ``events`` is the URL of a store that keeps an event of every decision and a summary of every
    response: ``"sqlite:///guard.db"``, ``"postgresql://user@host/name"``, or ``"none"``.
    ``keep_text`` says what it stores of the text (``"never"``, ``"hash"``, ``"redacted"``,
    ``"full"``); ``keep_days`` is how long it stores a response, "none" for ever. With "redacted",
    ``review_share`` is the share of passing segments whose text is stored too, for review.

    ``metrics`` is a registry for Prometheus metrics, ``traces`` a tracer provider for
    OpenTelemetry's spans and events; True uses the process's own registry or provider.

    Raises ConfigError for a setting that is unknown or out of range, and for a store that cannot
    be opened; WeightsError if the detector's weights are missing or their hashes differ from the
    recorded ones.
    """

    def __init__(
        self,
        policy: PolicyLike | None = None,
        *,
        detector: str | Detector | None = None,
        index: str | Path | None = None,
        weights: str | Path | None = None,
        device: str | None = None,
        judge: Mapping[str, Any] | None = None,
        served: Mapping[str, Any] | None = None,
        sinks: Iterable[Sink] = (),
        events: str | None = None,
        keep_text: str | None = None,
        keep_days: int | str | None = None,
        review_share: float | None = None,
        metrics: bool | CollectorRegistry | None = None,
        traces: bool | TracerProvider | None = None,
        **overrides: Any,
    ) -> None:
        configured = {} if isinstance(policy, Policy) else read_settings()
        own = {key: configured.pop(key) for key in OWN_KEYS if key in configured}
        base = policy if isinstance(policy, Policy) else policy_from(configured)
        plain = policy is None or isinstance(policy, Policy)
        values = {} if plain else values_of(policy, "Guard", "a Policy, ")
        self.policy = policy_from({**values, **overrides}, base=base, where="Guard")
        self.sinks = tuple(_shielded_sink(sink) for sink in sinks)
        self._workers = Workers()
        self._breakers = Breakers()
        kept: dict[str, Any] = {"events": events, "keep_text": keep_text, "keep_days": keep_days}
        kept["review_share"] = review_share
        own |= {k: own_value(k, v, "Guard") for k, v in kept.items() if v is not None}
        if detector is not None and not isinstance(detector, str):
            loading = {"index": index, "weights": weights, "device": device}
            self.detector = _checked_detector(
                detector, {**loading, "judge": judge, "served": served}
            )
        else:
            arguments: dict[str, Any] = {"detector": detector, "index": index, "weights": weights}
            checked = {"device": device, "judge": judge, "served": served}
            arguments |= {k: own_value(k, v, "Guard") for k, v in checked.items() if v is not None}
            own = merge_settings(own, {k: v for k, v in arguments.items() if v is not None})
            self.detector = detector_named(
                own.get("detector", DEFAULT),
                _absolute_path(own.get("weights")),
                DetectorOptions(
                    _absolute_path(own.get("index")),
                    JudgeSettings.of(own.get("judge", {})),
                    ServedSettings(**own.get("served", {})),
                    own.get("device", CPU),
                ),
            )
        exports = {"metrics": metrics, "traces": traces}
        own |= {k: v for k, v in exports.items() if v is not None}
        self.recorder = _event_recorder(own)

    def check(self, text: str) -> Verdict:
        """Return the verdict on the highest-scoring segment of ``text``.

        Spans point into the whole text. If no segment is biased, but one could not be judged for a
        reason on which the policy stops, the verdict is that ``unjudged`` one. Raises UsageError
        for empty text.
        """
        return self.check_many([text])[0]

    def check_many(self, texts: Iterable[str]) -> list[Verdict]:
        """Return one verdict for each text, in order; each as :meth:`check` returns it."""
        if isinstance(texts, (str, bytes)):
            raise UsageError("check_many takes a list of texts; for a single one call check.")
        return [highest_verdict(trail, self.policy) for trail in self._trails_of(list(texts))]

    def trail(self, text: str, *, user: str | None = None) -> GuardTrail:
        """Return the decisions on all segments of ``text``, also after a biased one.

        ``user`` is the message that the text answers; the detector sees it if the policy's
        ``user_context`` is on.
        """
        return self._trails_of([text], user or "")[0]

    def stream(self, texts: Iterable[str], *, guard: PolicyLike | None = None) -> TextStream:
        """Return an iterator of the released text of ``texts``, guarded as they come."""
        return TextStream(texts, self.session(guard))

    def astream(
        self, texts: AsyncIterable[str], *, guard: PolicyLike | None = None
    ) -> AsyncTextStream:
        """Return the async iterator of the released text of an async source."""
        return AsyncTextStream(texts, self.session(guard))

    @litellm_signature(signatures.completion)
    def completion(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.completion`` with the same arguments and guard its answer.

        ``guard`` holds settings of the policy for this call alone. A stream is a
        ``CustomStreamWrapper``, a whole response a ``ModelResponse``; both carry ``.guard``, the
        :class:`GuardTrail`. Raises LiteLLM's errors, and BiasFound under the action ``raise``.
        """
        from guard.doors import chat

        return chat.DOOR.call(self.session(guard), args, kwargs)

    @async_litellm_signature(signatures.acompletion)
    async def acompletion(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.acompletion`` and guard its answer, as :meth:`completion` does."""
        from guard.doors import chat

        return await chat.DOOR.acall(self.session(guard), args, kwargs)

    @litellm_signature(signatures.text_completion)
    def text_completion(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.text_completion`` and guard its answer, as :meth:`completion` does.

        A stream is a ``TextCompletionStreamWrapper``, a whole response a
        ``TextCompletionResponse``.
        """
        from guard.doors import text as text_completion

        return text_completion.DOOR.call(self.session(guard), args, kwargs)

    @async_litellm_signature(signatures.text_completion)
    async def atext_completion(
        self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any
    ) -> Any:
        """Call ``litellm.atext_completion`` and guard its answer."""
        from guard.doors import text as text_completion

        return await text_completion.DOOR.acall(self.session(guard), args, kwargs)

    @litellm_signature(signatures.responses)
    def responses(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.responses`` and guard its answer, as :meth:`completion` does.

        A stream is an instance of LiteLLM's stream class, a whole response a
        ``ResponsesAPIResponse``. A stopped response is ``incomplete`` with the reason
        ``content_filter``.
        """
        from guard.doors import responses

        return responses.DOOR.call(self.session(guard), args, kwargs)

    @async_litellm_signature(signatures.responses)
    async def aresponses(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.aresponses`` and guard its answer."""
        from guard.doors import responses

        return await responses.DOOR.acall(self.session(guard), args, kwargs)

    @litellm_signature(signatures.messages)
    def messages(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.anthropic.messages.create`` and guard the message.

        A stream yields bytes of server-sent events, as LiteLLM's does; a whole message is a dict.
        A stopped message has the stop reason ``refusal``. For providers with a Messages API of
        their own, LiteLLM has no synchronous call and raises an error.
        """
        from guard.doors import messages

        return messages.DOOR.call(self.session(guard), args, kwargs)

    @async_litellm_signature(signatures.messages)
    async def amessages(self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.anthropic.messages.acreate`` and guard the message."""
        from guard.doors import messages

        return await messages.DOOR.acall(self.session(guard), args, kwargs)

    @litellm_signature(signatures.batch_completion)
    def batch_completion(
        self, *args: Any, guard: PolicyLike | None = None, **kwargs: Any
    ) -> list[Any]:
        """Call ``litellm.batch_completion`` and guard each of its answers separately.

        As in LiteLLM, the list holds an error in place of an answer that failed; this includes
        the guard's own errors.
        """
        from guard.doors.chat import batch

        return batch.batch_completion(self.session(guard), args, kwargs)

    def wrap(self, router: RouterT) -> RouterT:
        """Return ``router``, a ``litellm.Router``, with its completion methods guarded.

        These are ``completion``, ``text_completion``, ``responses``, their async variants,
        ``aanthropic_messages`` and ``chat.completions.create``; they take ``guard`` as the methods
        of this class do. The Router does not retry or fall back after a stop. Other attributes
        that may return a model's text raise UsageError on lookup; so does wrapping anything but a
        Router.
        """
        from guard.doors.litellm.router import GuardedRouter

        return cast(RouterT, GuardedRouter(router, self.session))

    def install(self) -> None:
        """Guard every LiteLLM call in this process, until :func:`guard.uninstall`.

        This includes calls that frameworks make, and calls through names imported earlier. Raises
        ConfigError, and changes nothing, if LiteLLM is not as expected.
        """
        from guard.doors.litellm import install

        install.install(self.session)

    def intercept(self) -> AbstractContextManager[None]:
        """Return a context manager that guards LiteLLM calls: ``with g.intercept():``.

        It applies to the block's own context and the tasks started in it; also to other threads,
        unless they have a block of their own or a guard is installed.
        """
        from guard.doors.litellm import install

        return install.intercept(self.session)

    def session(self, call: PolicyLike | None = None) -> Session:
        """Return the session of one response; ``call`` holds that call's own settings.

        The session keeps the present version of the index.
        """
        policy = self.policy
        if isinstance(call, Policy):
            policy = call
        elif call is not None:
            where = "guard= of this call"
            policy = policy_from(values_of(call, where, "a Policy, "), base=policy, where=where)
        judge = WindowJudge(self.detector, policy, self._workers, self._breakers)
        return Session(policy=policy, judge=judge, sinks=self.sinks, recorder=self.recorder)

    def _trails_of(self, texts: Sequence[str], user: str = "") -> list[GuardTrail]:
        # No verdict may end the text: every segment is judged.
        language = "judge" if self.policy.language == "judge" else "pass"
        policy = policy_from(
            {"action": "flag", "failure": "open", "language": language}, base=self.policy
        )
        judge = WindowJudge(self.detector, policy, self._workers, self._breakers)
        session = Session(policy, judge, self.sinks, door="check", recorder=self.recorder)
        waiting: list[tuple[ResponseGate[str], Job]] = []
        gates = []
        for number, text in enumerate(texts):
            _check_text(text, number, len(texts))
            gate = session.gate(TextCodec(), user=user)
            gate.push(text)
            gate.finish()
            waiting += [(gate, job) for job in _pending_jobs(gate)]
            gates.append(gate)
        while waiting:
            for begin in range(0, len(waiting), _BATCH):
                batch = waiting[begin : begin + _BATCH]
                verdicts = judge.judge([job.window for _, job in batch])
                for (gate, job), verdict in zip(batch, verdicts, strict=True):
                    gate.resolve(job, verdict)
            # Second looks: of each text one at a time.
            waiting = [(gate, job) for gate in gates for job in _pending_jobs(gate)]
        for gate in gates:
            session.ended(gate.trail, "completed")
        return [gate.trail for gate in gates]


def _pending_jobs(gate: ResponseGate[str]) -> Iterator[Job]:
    while jobs := gate.pending():
        yield from jobs


def _event_recorder(own: Mapping[str, Any]) -> Recorder | None:
    from guard.watch import recorder

    return recorder(own, _call_span)


def _call_span(session: Session) -> Any:
    """Return LiteLLM's span of the call, or the one in which it traces the call; None if none."""
    span = None
    if session.request_id is not None:
        from guard.doors.litellm.compat import call_span

        span = call_span(session.request_id)
    return span or session.parent_span


def _absolute_path(path: str | Path | None) -> Path | None:
    if path is None:
        return None
    if not isinstance(path, (str, Path)):
        raise ConfigError(f"Guard: {path!r} is not a folder's name; pass a str or a Path.")
    if "\0" in str(path):
        raise ConfigError(f"Guard: {str(path)!r} is not a folder's name: it has a null character.")
    # The working directory may change later.
    return Path(path).absolute()


def _checked_detector(detector: Detector, settings: Mapping[str, object]) -> Detector:
    if not isinstance(detector, Detector):
        raise ConfigError(
            f"Guard: a {type(detector).__name__} is not a detector; pass {', '.join(DETECTORS)} or "
            "an object with name, operating_points and snapshot()."
        )
    if any(value is not None for value in settings.values()):
        *others, last = settings
        raise ConfigError(
            f"Guard: {', '.join(others)} and {last} belong to detectors that guard makes; pass "
            "them to your own detector instead."
        )
    return detector


def _shielded_sink(sink: Sink) -> Sink:
    """Return ``sink`` with its exceptions logged instead of raised."""

    def call(decision: Decision) -> None:
        try:
            sink(decision)
        except Exception as error:
            _log.error("a sink failed with %s", type(error).__name__)

    return call


def _check_text(text: object, number: int, total: int) -> None:
    which = "The text" if total == 1 else f"Text {number + 1} of {total}"
    if not isinstance(text, str):
        raise UsageError(f"{which} must be a string, got {type(text).__name__}.")
    if not text.strip():
        raise UsageError(f"{which} is empty; pass text to judge.")


def highest_verdict(trail: GuardTrail, policy: Policy) -> Verdict:
    """Return the verdict on a whole text, with spans in that text.

    It is the highest-scoring biased verdict of its segments; else an unjudged one on which
    ``policy`` stops; else the highest-scoring one.
    """

    def rank(decision: Decision) -> tuple[bool, bool, bool, float]:
        verdict = decision.verdict
        stops = policy.stops_unjudged(verdict.unjudged)
        return verdict.biased, stops, not verdict.unjudged, verdict.score or 0.0

    decision = max(trail, key=rank)
    return decision.verdict.shifted(decision.span.start)

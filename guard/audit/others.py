"""Opens the audited model, and the analyst, scorer and embedder that read what it wrote.

An analyst is any model that an audit can ask, or the suite's own patterns. The scorer is the
shipped detector at an operating point, the embedder a sentence encoder.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, get_args

from guard.audit.audit import guard_settings
from guard.audit.calls import Piece, Reply, Slot
from guard.audit.models import LOCAL, CallError, CombinedModel, Model, check_model
from guard.audit.sending import PATTERNS, Other, Sending
from guard.errors import UsageError
from guard.places import DEFAULT, ENCODERS, encoders_in
from guard.policy import OperatingPoint, Policy
from guard.suites import AsksOtherModels, Capability, Chat, GroupTexts, Judge, Request, Role, Suite
from guard.suites.clustering import leaders
from guard.suites.optional import part_of
from guard.verdict import FAILURES

if TYPE_CHECKING:
    from guard.core import Guard

EMBEDDER = "mpnet"
"""The default embedder."""
_POINTS: tuple[str, ...] = get_args(OperatingPoint)


def open_model(
    name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
) -> Model:
    """Return the model ``name``: ``local:…`` in this process, any other through LiteLLM.

    Raises GuardError where a local model cannot be loaded.
    """
    sending = sending or Sending()
    if name.startswith(LOCAL):
        from guard.audit.local_model import LocalModel

        return LocalModel(name, timeout_s=timeout_s, sending=sending)
    from guard.audit.remote_model import RemoteModel

    return RemoteModel(name, timeout_s=timeout_s, stream=stream, sending=sending)


class Opener(Protocol):
    """Opens a model by its name, as :func:`open_model` does."""

    def __call__(
        self, name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
    ) -> Model:
        """Return the model ``name``; raises GuardError where it cannot be opened."""
        ...


def other_models(
    suite: Suite,
    analyst: str | None,
    scorer: str = "encoder:balanced",
    embedder: str = EMBEDDER,
    sending: Sending | None = None,
) -> Mapping[Role, Other]:
    """Return, by role, the models that ``suite`` asks besides the audited one.

    ``sending`` is the analyst's. Raises UsageError where one is missing or cannot be asked.
    """
    others_by_role: dict[Role, Other] = {}
    roles = part_of(suite, AsksOtherModels).roles
    sending = sending or Sending()
    if "analyst" in roles:
        if analyst is None:
            raise UsageError(
                f"{suite.name} needs an analyst to read the answers; give --analyst MODEL, or "
                f"--analyst {PATTERNS} to try the suite without a second model."
            )
        if analyst != PATTERNS:
            check_model(analyst)
            sending = sending.for_model(analyst, suite, "analyst")
        others_by_role["analyst"] = Other.of(analyst, sending)
    if "scorer" in roles:
        others_by_role["scorer"] = _scorer_of(scorer)
    if "embedder" in roles:
        if embedder != EMBEDDER:  # a plan needs no weights of guard's own
            Embedder(embedder)
        others_by_role["embedder"] = Other.of(embedder, Sending())
    return others_by_role


def default_scorer(detector: str | None) -> str:
    """Return a scorer other than the guard's ``detector``: an encoder that does not judge for it.

    Where both do, it is the small one. Raises ConfigError for an unknown detector.
    """
    guards = encoders_in(detector or DEFAULT)
    return f"{next((n for n in ENCODERS if n not in guards), ENCODERS[-1])}:balanced"


def _scorer_of(name: str) -> Other:
    return Other(name, {"model": name, **guard_settings(_scoring_guard(name))})


def _scoring_guard(name: str) -> Guard:
    from guard.core import Guard

    detector, _, point = name.rpartition(":")
    if point not in _POINTS:
        raise UsageError(
            f"There is no scorer {name!r}; give a detector and an operating point "
            f"({', '.join(_POINTS)}), such as encoder:strict."
        )
    # "stop": a text partly in another language counts as unjudged, unless it is biased.
    return Guard(
        Policy.model_validate({"operating_point": point, "language": "stop"}), detector=detector
    )


def combined_model(
    model: Model,
    others: Mapping[Role, Other],
    *,
    timeout_s: float,
    opener: Opener = open_model,
) -> Model:
    """Return ``model`` combined with ``others``; ``model`` itself where there are none.

    ``opener`` opens an analyst that is a model; scorer, embedder and patterns run in this process.
    Raises GuardError where one cannot be loaded.
    """
    models: dict[Role, Model] = {}
    for role, other in others.items():
        if role == "scorer":
            models[role] = Scorer(other.name)
        elif role == "embedder":
            # Its answers come last: one that cannot be loaded would be found after paid calls.
            models[role] = Embedder(other.name).loaded()
        elif other.name == PATTERNS:
            models[role] = Patterns()
        else:
            models[role] = opener(other.name, timeout_s=timeout_s, sending=other.sending)
    return CombinedModel(model, models) if models else model


def recorded_scorer(other: Other) -> Scorer:
    """Return the scorer of a recorded audit; raises UsageError where its settings have changed."""
    if _scorer_of(other.name).key != other.key:
        raise UsageError(
            f"The cassette was scored by another version of {other.name} than is installed; score "
            "the answers again with guard audit run, without --replay."
        )
    return Scorer(other.name)


class _InProcess:
    """A model without a connection."""

    max_concurrency: int | None = None
    supported: frozenset[Capability] = frozenset()

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` it has."""
        return wanted & self.supported

    async def aclose(self) -> None:
        """Do nothing: its threads end with the process."""


class Patterns(_InProcess):
    """An analyst without a model: the suite's own patterns."""

    name = PATTERNS
    supported = frozenset({"chat"})

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return what the patterns find."""
        if not isinstance(request, Chat) or request.patterns is None:
            raise UsageError(f"The suite has no patterns; give an --analyst other than {PATTERNS}.")
        return Reply((Piece(request.patterns()),))


class Scorer(_InProcess):
    """The shipped detector; its answer is the verdict as JSON."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._guard = _scoring_guard(name)

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the verdict on the highest-scoring segment of the text.

        Raises CallError where the detector failed, which is not a finding about the text.
        """
        assert isinstance(request, Judge)
        return await asyncio.to_thread(self._judge, request)

    def _judge(self, request: Judge) -> Reply:
        from guard.core import highest_verdict

        trail = self._guard.trail(request.text, user=request.user)
        verdict = highest_verdict(trail, self._guard.policy)
        if verdict.unjudged in FAILURES:
            raise CallError(f"the scorer {self.name} failed ({verdict.unjudged})", retryable=True)
        return Reply((Piece(verdict.to_json()),))


class Embedder(_InProcess):
    """A sentence encoder in this process; its answer is the leader of each text, as JSON.

    Raises WeightsError where its weights are not installed, or the name is of no model.
    """

    max_concurrency: int | None = 1

    def __init__(self, name: str) -> None:
        from guard.local.embedder import SentenceEmbedder

        self.name = name
        self._embedder = SentenceEmbedder(name)
        # The tokenizer is not thread-safe, and each thread would load the network again.
        self._lock = threading.Lock()

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the leaders."""
        assert isinstance(request, GroupTexts)
        return await asyncio.to_thread(self.unified, request)

    def loaded(self) -> Embedder:
        """Return itself, with its network in memory.

        Raises UsageError or WeightsError where it cannot be loaded.
        """
        with self._lock:
            self._embedder.load()
        return self

    def unified(self, request: GroupTexts) -> Reply:
        """Return the leaders."""
        with self._lock:
            vectors = self._embedder.embed(request.texts)
        leading = leaders(vectors, request.threshold)
        return Reply((Piece(json.dumps(leading, separators=(",", ":"))),))

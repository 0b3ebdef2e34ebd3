"""The requests that a suite makes, who answers them, and the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Role = Literal["model", "analyst", "scorer", "embedder"]
"""Who answers: the audited ``model``; an ``analyst``, a model that reads its answers; a ``scorer``,
the detector that judges them; or an ``embedder``, which compares texts by meaning."""


@dataclass(frozen=True, slots=True)
class Patch:
    """An activation patch: hidden states of one prompt replace those of another.

    The states of ``words`` in the chat ``source`` after block ``source_layer`` (counted from 0)
    replace those of the X that stand for ``{X}`` in the requested chat, after ``target_layer``.
    The answer continues ``opening``. See :mod:`guard.local.patching`.
    """

    source: tuple[Mapping[str, str], ...]
    words: str
    opening: str
    source_layer: int
    target_layer: int


@dataclass(frozen=True, slots=True)
class Chat:
    """A request for an answer to ``messages``, each with ``role`` and ``content``.

    ``settings`` are LiteLLM's (``temperature``, ``max_tokens``, ...). ``logprobs`` asks for that
    many of the likeliest first tokens. Equal requests with temperature 0 are sent once.
    ``completes`` maps a choice, which alone names no group, to the sentence that it completes, and
    any other answer to an empty text. Users never get that sentence: see :meth:`sentence`.

    ``by`` is ``model`` or ``analyst``. ``patterns`` gives the answer of the analyst ``patterns``,
    which is no model. The audit sets ``whom``: the analyst and its settings. ``patch`` needs the
    capability ``patching``.
    """

    messages: tuple[Mapping[str, str], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    logprobs: int = 0
    completes: Callable[[str], str] | None = field(default=None, compare=False)
    by: Role = "model"
    patterns: Callable[[], str] | None = field(default=None, compare=False)
    patch: Patch | None = None
    whom: str = ""

    def sentence(self, answer: str) -> str:
        """Return the sentence that ``answer`` completes; empty if none, or if it says it itself."""
        sentence = self.completes(answer) if self.completes and answer else ""
        return "" if sentence == answer else sentence


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """A request for the log-likelihood of each of ``continuations`` after ``context``.

    With ``messages``, which then include the context, each continuation is the model's next turn
    under its chat template.
    """

    context: str
    continuations: tuple[str, ...]
    messages: tuple[Mapping[str, str], ...] = ()
    by: ClassVar[Role] = "model"


@dataclass(frozen=True, slots=True)
class Judge:
    """A request for the scorer's verdict on ``text``, the answer to ``user``.

    The answer's text is :meth:`guard.verdict.Verdict.to_json`. The audit sets ``whom``.
    """

    text: str
    user: str | None = None
    whom: str = ""
    by: ClassVar[Role] = "scorer"


@dataclass(frozen=True, slots=True)
class GroupTexts:
    """A request to the embedder: group ``texts`` whose cosine is ``threshold`` or more.

    The answer's text is a JSON list: for each text the index of its group's leader
    (:func:`guard.suites.clustering.leaders`). The audit sets ``whom``.
    """

    texts: tuple[str, ...]
    threshold: float
    whom: str = ""
    by: ClassVar[Role] = "embedder"


Request = Chat | LogLikelihood | Judge | GroupTexts


@dataclass(frozen=True, slots=True)
class TextScore:
    """The summed natural log-probability of a continuation, and its number of tokens."""

    logprob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Return exp of the mean negative log-likelihood; nan without tokens."""
        return math.exp(-self.logprob / self.tokens) if self.tokens else math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request in one arm.

    ``finish_reason`` is ``planned`` in a plan, which goes through the requests without sending
    them. ``first_tokens`` maps the likeliest first tokens to natural log-probabilities, where
    requested and given. ``scores`` answer a :class:`LogLikelihood`, in its order.
    """

    text: str = ""
    finish_reason: str = "stop"
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    scores: tuple[TextScore, ...] = ()

"""What a suite asks, of whom, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Role = Literal["model", "analyst", "scorer", "embedder"]
"""Who is asked: the audited ``model``, an ``analyst`` that reads what it wrote, a ``scorer``, the
detector that judges it, or an ``embedder``, which says how alike texts are."""


@dataclass(frozen=True, slots=True)
class Patch:
    """States of a prompt that are put into another (:mod:`guard.local.patching`).

    Those of ``words`` in the chat ``source`` behind block ``source_layer``, counted from 0, take
    the place of the X that stand for ``{X}`` in the chat that is asked, behind ``target_layer``.
    The answer goes on from ``opening``.
    """

    source: tuple[Mapping[str, str], ...]
    words: str
    opening: str
    source_layer: int
    target_layer: int


@dataclass(frozen=True, slots=True)
class Chat:
    """A request for an answer to ``messages``, each with ``role`` and ``content``.

    ``settings`` are LiteLLM's (``temperature``, ``max_tokens``, ...). With ``logprobs`` the answer
    carries that many of the likeliest first tokens. Of equal requests with temperature 0 one is
    asked for all. ``shown`` makes of a choice that alone shows no group what its reader has before
    them, such as the sentence that it completes; a guard is judged by that. Any other answer, a
    refusal too, it leaves as it is.

    ``by`` is ``model`` or ``analyst``. ``patterns`` answers in the place of an analyst without a
    model. ``whom`` is the audit's: which analyst it is, with its settings. ``patch`` is for models
    that can do ``patching``.
    """

    messages: tuple[Mapping[str, str], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    logprobs: int = 0
    shown: Callable[[str], str] | None = field(default=None, compare=False)
    by: Role = "model"
    patterns: Callable[[], str] | None = field(default=None, compare=False)
    patch: Patch | None = None
    whom: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """A request for the log-probabilities of ``continuations``, each after ``context``.

    Where there are ``messages`` each is the model's turn after them, under its chat template; they
    hold the context then.
    """

    context: str
    continuations: tuple[str, ...]
    messages: tuple[Mapping[str, str], ...] = ()
    by: ClassVar[Role] = "model"


@dataclass(frozen=True, slots=True)
class Judge:
    """A request for the scorer's verdict on ``text``, which answers ``user``.

    The text of the answer is the verdict as JSON (:meth:`guard.verdict.Verdict.to_json`). ``whom``
    is the audit's, as in :class:`Chat`.
    """

    text: str
    user: str | None = None
    whom: str = ""
    by: ClassVar[Role] = "scorer"


@dataclass(frozen=True, slots=True)
class Unify:
    """A request to the embedder for groups of ``texts`` that are alike.

    The text of the answer is a JSON list: for each text the place of the one that leads its group
    (:func:`guard.suites.unifying.leaders`). ``whom`` is the audit's, as in :class:`Chat`.
    """

    texts: tuple[str, ...]
    threshold: float
    whom: str = ""
    by: ClassVar[Role] = "embedder"


Request = Chat | Given | Judge | Unify


@dataclass(frozen=True, slots=True)
class TextScore:
    """The summed natural log-probability of a continuation, and over how many of its tokens."""

    logprob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Return exp of the mean negative log-likelihood; nan over no token."""
        return math.exp(-self.logprob / self.tokens) if self.tokens else math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request in one arm.

    ``finish_reason`` is ``planned`` where nothing has been asked: a plan walks through the requests
    with such answers.

    ``first_tokens`` are the likeliest first tokens with their natural log-probabilities, empty
    where not asked for or not given; ``scores`` answer a :class:`Given`, in its order.
    """

    text: str = ""
    finish_reason: str = "stop"
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    scores: tuple[TextScore, ...] = ()

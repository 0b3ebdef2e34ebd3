"""A chat model of LiteLLM's as the detector: ``judge:MODEL``, with the instruction of BiasAlert.

The judged text is one quoted field of the user message, references and context are others, and the
instruction is the system message, the same for every window. What a text says can therefore not
end its field, add a message or change the instruction; whether a model obeys what it reads inside
the field is the model's own matter.

The score is p(yes) / (p(yes) + p(no)) of the first answer token where the provider gives
log-probabilities, and otherwise 1 or 0 by the answer. A reply that cannot be read with certainty is
``unusable``, never "not biased".
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from guard.detect.encoder import Encoder, encodable_text
from guard.detect.instruction import Instruction, TemplateAnswer, located_pairs, parse_answer
from guard.detect.judge_client import BudgetSpent, JudgeClient, JudgeRequest
from guard.detect.judge_reply import JudgeReply
from guard.detect.judge_spent import JudgeSpent
from guard.detect.script import mostly_latin
from guard.judge_settings import TRANSPORT, JudgeSettings
from guard.policy import EVEN, EVEN_POINTS
from guard.retrieve.index import BiasIndex
from guard.verdict import BiasType, Reference, Scores, Window

_MOST_CONTEXT = 2000  # characters of a context text, of its end: a user may paste a book
_USUAL = JudgeSettings()
_WHOLE = Instruction()
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


class ModelJudge:
    """A chat model that reads each window with references from the bias index.

    ``model`` is LiteLLM's name of it, ``retriever`` finds the references. All operating points have
    the threshold .5. Equal windows are asked once; :meth:`spent` tells calls, cost and latency.

    Thread-safe. A judge's calls are never guarded.

    Raises:
        ConfigError: as :class:`JudgeClient`.

    """

    def __init__(
        self,
        model: str,
        retriever: Encoder,
        settings: JudgeSettings = _USUAL,
        instruction: Instruction = _WHOLE,
    ) -> None:
        self.client = JudgeClient(model, settings)
        self._retriever = retriever
        self._instruction = instruction

    @property
    def name(self) -> str:
        """The model, and a hash of the instruction and the parameters."""
        asked = {n: v for n, v in self.client.params.items() if n not in TRANSPORT}
        told = json.dumps([self._instruction.fixed(), asked], sort_keys=True)
        return f"judge:{self.client.model}+{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    @property
    def instruction(self) -> Instruction:
        """The switches of the instruction in use."""
        return self._instruction

    def instructed(self, instruction: Instruction) -> ModelJudge:
        """Return the same judge under another instruction; calls and their budget are shared."""
        other = copy.copy(self)
        other._instruction = instruction
        return other

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """The threshold .5 for every bias type, at ``strict``, ``balanced`` and ``quiet``."""
        return EVEN_POINTS

    @property
    def concurrency(self) -> int:
        """The most calls at a time; guard has as many threads wait for them."""
        return self.client.settings.concurrency

    @property
    def asks(self) -> str:
        """How the model is asked, in words; no call is made."""
        return self.client.summary()

    @property
    def embedder(self) -> Encoder:
        """The retriever: an index for the judge is built with its vectors."""
        return self._retriever

    @property
    def index(self) -> BiasIndex | None:
        """The bias index that new snapshots use."""
        return self._retriever.index

    def use_index(self, index: BiasIndex | Path) -> None:
        """Use another index from the next snapshot on; see :meth:`Encoder.use_index`."""
        self._retriever.use_index(index)

    def snapshot(self) -> JudgeSession:
        """Return a session that keeps the present index."""
        return JudgeSession(self, self.index)

    def spent(self) -> JudgeSpent:
        """Return what was asked and answered so far, and what it cost."""
        return self.client.counts.spent(self.client.calls, self.client.cost, self.client.stopped)

    def scores(self, windows: Sequence[Window], index: BiasIndex | None) -> list[Scores]:
        """Score windows, whose requests are under way at the same time.

        Raises:
            GuardError, or LiteLLM's errors: a call failed.

        """
        begun = []
        for window in map(_encodable_window, windows):
            references = self._retriever.references(window.text, index)
            messages = self._instruction.messages(window, references)
            begun.append((window, references, self.client.begin(messages)))
        return [self._reply_scores(*one) for one in begun]

    def _reply_scores(
        self, window: Window, references: tuple[Reference, ...], request: JudgeRequest
    ) -> Scores:
        counts = self.client.counts
        try:
            reply = self.client.result(request)
        except BudgetSpent:  # told once, and no failure that a breaker could wait for
            counts.judged("budget spent")
            return Scores(unjudged="failure")
        except Exception as error:
            counts.judged(type(error).__name__)
            raise
        answer = None if reply.problem else parse_answer(reply.text)
        if answer is None or (answer.biased and answer.bias_type is None):
            counts.judged(f"unusable: {_reason_unusable(reply, answer)}")
            return Scores(unjudged="unusable")
        pairs = located_pairs(answer, window.text)
        counts.judged(
            "biased" if answer.biased else "not biased", max(0, len(answer.pairs) - len(pairs))
        )
        score = _reply_score(reply, answer)
        kind = answer.bias_type or (references[0].bias_type if references else "social")
        return Scores(score, kind, pairs, references)


class JudgeSession:
    """The judge bound to one index version."""

    def __init__(self, judge: ModelJudge, index: BiasIndex | None) -> None:
        self._judge = judge
        self._index = index

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        return None if self._index is None else self._index.version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order."""
        return self._judge.scores(windows, self._index)


def _reply_score(reply: JudgeReply, answer: TemplateAnswer) -> float:
    """Return the probability that the text is biased; an answer "biased" is never below .5."""
    probability = reply.probability()
    if probability is None:
        return float(answer.biased)
    # A sampled answer may differ from the likelier one: the worse of the two counts.
    return max(probability, EVEN) if answer.biased else probability


def _reason_unusable(reply: JudgeReply, answer: TemplateAnswer | None) -> str:
    """Return why a reply is unusable."""
    if reply.problem:
        return reply.problem
    if answer is not None:
        return "no known type"
    sentences = map(parse_answer, _SENTENCES.split(reply.text))
    if len({said.biased for said in sentences if said is not None}) > 1:
        return "contradicts itself"
    return "not in the template" if mostly_latin(reply.text) else "another language"


def _encodable_window(window: Window) -> Window:
    return replace(
        window,
        text=encodable_text(window.text),
        context=tuple(encodable_text(text[-_MOST_CONTEXT:]) for text in window.context),
        user=None if window.user is None else encodable_text(window.user[-_MOST_CONTEXT:]),
    )

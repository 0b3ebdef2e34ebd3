"""A causal language model as detector: it reads an instruction and answers in a template.

The method of the BiasAlert paper: five statements of the bias index that resemble the text are
shown with it, and the model, tuned by a LoRA adapter or as it is, answers "Yes, ..." or "No, ...".
The probability of the first word is the score, so that thresholds work; type, group and attribute
are written only where the score reaches a threshold.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from guard.detect.answer import NO, YES
from guard.detect.copied_answer import copied_answer, decision_tokens
from guard.detect.encoder import Encoder, failures_first, sigmoid
from guard.detect.instruction import Instruction
from guard.detect.language import english_words, has_english_clause, language_of
from guard.detect.script import latin_part, mostly_latin
from guard.errors import UsageError, WeightsError
from guard.forks import Lock, native
from guard.local.adapter import (
    Adapter,
    base_hash,
    is_adapter,
    read_adapter,
    sharing_copy,
    with_adapter,
)
from guard.local.memory import BYTES
from guard.local.model import Dtype, LoadedModel, load_model
from guard.local.prefix import PromptReading, SharedPrefix, common_prefix
from guard.policy import EVEN_POINTS, OperatingPoint, Points
from guard.retrieve.index import BiasIndex
from guard.verdict import BIAS_TYPES, BiasType, Reference, Scores, Window

# Windows of one call on a GPU.
_BATCH = 16
# Tokens that are left for an answer; also the most of one that is written freely.
_ANSWER = 160
# Characters that two parts of an overlong segment share.
_OVERLAP = 200


class _WindowPrompt(NamedTuple):
    """A prompt, the part of the segment it asks about, and the references it shows."""

    tokens: list[int]
    text: str
    start: int  # of the part, in the segment
    references: tuple[Reference, ...]


class Generative:
    """A detector that asks a causal language model, in this process, on the CPU or on CUDA.

    ``place`` is the folder of an adapter, which names its base, or a model without adapter: a name
    to fetch (``qwen``), a folder, a GGUF file, or the id of a model in the local cache of the
    Hugging Face hub. A model without adapter is "untuned" by its name: temperature 1, offset 0,
    and the threshold .5 for every type at every operating point. ``retriever`` finds the
    references. ``dtype`` is how the numbers are kept; by default float32, and on a GPU with too
    little memory for that bfloat16.

    Thread-safe: one lock around the network, whose state no call changes. On CUDA windows of
    several responses share a pass (``batch``), in float32 only: there the score of a window does
    not depend on the others, up to rounding (1e-4).

    Raises:
        WeightsError: the model or the adapter is missing, damaged, for another base, has no chat
            template, or takes too much memory.
        UsageError: the extra ``local`` is not installed.

    """

    @native
    def __init__(self, place: str, retriever: Encoder, dtype: Dtype | None = None) -> None:
        self._retriever = retriever
        self._lock = Lock()
        folder = Path(place)
        with contextlib.suppress(RuntimeError):  # "~name" of nobody
            folder = folder.expanduser()
        adapter = read_adapter(folder) if is_adapter(folder) else None
        base = load_model(
            place if adapter is None else adapter.settings.base.name, dtype or "float32"
        )
        self._base = base_hash(base.network)
        if adapter is not None:
            base = with_adapter(base, adapter)
        self._model = _placed_model(base, dtype)
        self._adapter = adapter
        settings = None if adapter is None else adapter.settings
        self._temperature = 1.0 if settings is None else settings.temperature
        self._offset = 0.0 if settings is None else settings.offset
        self._k = 5 if settings is None else settings.k
        self._points = EVEN_POINTS if adapter is None else _adapter_points(adapter)
        own = re.sub("[^0-9A-Za-z.]+", "-", Path(place).stem).strip("-") or "model"
        self._kind = f"untuned.{own}" if settings is None else settings.version
        self._yes, self._no = _first_tokens(self._model, place)
        self._read_fixed_part(_adapter_instruction(adapter), place)

    def _read_fixed_part(self, instruction: Instruction, place: str) -> None:
        """Read the fixed part of the instruction."""
        self._instruction, self._place = instruction, place
        some = Reference("One statement.", "age", "", "", 0.5)
        windows = (Window("A trial."), Window("Other words?", ("Before.",), "Asked."))
        shown: tuple[tuple[Reference, ...], ...] = ((), (some,))
        every = [instruction.messages(w, references) for w in windows for references in shown]
        try:
            prompts = [self._model.prompt(messages) for messages in every]
            told = self._model.rendered(every[-1])
        except UsageError as error:
            raise WeightsError(f"{place} cannot be a detector: {error}") from None
        # Else every text would get the same verdict.
        if lost := [m["role"] for m in every[-1] if m["content"].strip() not in told]:
            raise WeightsError(
                f"{place} cannot be a detector: its chat template leaves out or changes the "
                f"message of the role {lost[0]!r}; name another model."
            )
        if self._room is not None and max(map(len, prompts)) > self._room:
            raise WeightsError(
                f"{place} reads {self._model.context} tokens, too few for the instruction "
                f"({max(map(len, prompts))}) and an answer ({_ANSWER}): name another model."
            )
        self._prefix = SharedPrefix(self._model, common_prefix(prompts))
        self._name = self._full_name()

    @property
    def _room(self) -> int | None:
        """Tokens that a prompt may have; None: no limit."""
        context = self._model.context
        return None if context is None else context - _ANSWER

    def instructed(self, instruction: Instruction) -> Generative:
        """Return the same detector, with the same network, under another instruction."""
        other = copy.copy(self)
        with self._lock:
            other._read_fixed_part(instruction, self._place)
        return other

    def unshared(self) -> Generative:
        """Return the same detector, but reading the whole instruction for every window.

        It gives the same scores, later: for measuring what the shared beginning saves.
        """
        other = copy.copy(self)
        other._prefix = SharedPrefix(self._model, ())
        return other

    def _full_name(self) -> str:
        parts = (
            self._base,
            "" if self._adapter is None else self._adapter.hash,
            str(asdict(self._instruction)),
            self._instruction.fixed(),
            str(self._model.network.dtype),
        )
        own = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        return f"generative-{self._kind}+{own}"

    @property
    def name(self) -> str:
        """Kind, version and hash of base, adapter, instruction and type of numbers.

        ``generative-1.0+HASH``, without an adapter ``generative-untuned.qwen+HASH``.
        """
        return self._name

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for ``strict``, ``balanced`` and ``quiet``."""
        return self._points

    @property
    def thresholds(self) -> tuple[float, float]:
        """The lowest threshold at which type, group and attribute are written, and 1."""
        return min(limit for row in self._points.values() for limit in row.values()), 1.0

    @property
    def batch(self) -> int:
        """The most windows of one call; 1 where scores would depend on the others."""
        import torch

        network = self._model.network
        return _BATCH if network.device.type == "cuda" and network.dtype == torch.float32 else 1

    @property
    def instruction(self) -> Instruction:
        """The switches of the instruction in use."""
        return self._instruction

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages that are judged; text in others is left unjudged."""
        return ("en",)

    @property
    def embedder(self) -> Encoder:
        """The encoder whose vectors find the references."""
        return self._retriever

    @property
    def index(self) -> BiasIndex | None:
        """The bias index that new snapshots use."""
        return self._retriever.index

    def use_index(self, index: BiasIndex | Path) -> None:
        """Use another index from the next snapshot on; see :meth:`Encoder.use_index`."""
        self._retriever.use_index(index)

    def snapshot(self) -> GenerativeSession:
        """Return a session that keeps the present index."""
        return GenerativeSession(self, self.index if self._instruction.references else None)

    def judge(self, windows: Sequence[Window], index: BiasIndex | None) -> list[Scores]:
        """Score windows in one pass for each :data:`batch`; see :class:`GenerativeSession`."""
        judged: list[Scores | None] = [None] * len(windows)
        asked: list[tuple[int, _WindowPrompt]] = []
        unsure = set()
        for number, window in enumerate(windows):
            language = _language_of(window.text)
            if language == "other":
                judged[number] = Scores(unjudged="language")
                continue
            if language == "unknown":
                unsure.add(number)
            asked += [(number, one) for one in self._window_prompts(window, index)]
        every = self._scored_prompts([one for _, one in asked])
        for (number, _), scores in zip(asked, every, strict=True):
            before = judged[number]
            if before is None or failures_first(scores) > failures_first(before):
                judged[number] = scores
        for number in unsure:
            scored = judged[number]
            if scored is not None and not self._finds_bias(scored):
                judged[number] = Scores(unjudged="language")
        return [scores for scores in judged if scores is not None]

    def answer(self, window: Window, index: BiasIndex | None) -> str:
        """Return what the model answers to ``window`` in its own words, the likeliest ones.

        An overlong segment is asked for by its first part. For measuring how often answers are
        usable; a score needs none.
        """
        asked = self._window_prompts(window, index)[0]
        with native, self._lock:
            said = []
            for token in self._prefix.read(asked.tokens).likeliest(_ANSWER):
                if token in self._model.ends:
                    break
                said.append(token)
        return str(self._model.tokenizer.decode(said, skip_special_tokens=True))

    def _finds_bias(self, scores: Scores) -> bool:
        assert scores.score is not None
        assert scores.bias_type is not None
        return scores.score >= self._points["strict"][scores.bias_type]

    def _biased_logit(self, logits: Any) -> float:
        return float(logits[self._yes] - logits[self._no])

    def _read_prompts(
        self, asked: Sequence[_WindowPrompt]
    ) -> Iterator[tuple[Any, PromptReading | None]]:
        """Yield the logits of each answer's first token; a prompt read alone can be continued."""
        for at in range(0, len(asked), self.batch):
            some = asked[at : at + self.batch]
            if len(some) == 1:
                with native, self._lock:
                    reading = self._prefix.read(some[0].tokens)
                yield reading.after(()), reading
                continue
            with native, self._lock:
                rows = self._prefix.read_many([one.tokens for one in some])
            for row in rows:
                yield row, None

    def _scored_prompts(self, asked: Sequence[_WindowPrompt]) -> Iterator[Scores]:
        for window_prompt, (logits, reading) in zip(asked, self._read_prompts(asked), strict=True):
            yield self._prompt_scores(window_prompt, logits, reading)

    def _prompt_scores(
        self, asked: _WindowPrompt, logits: Any, reading: PromptReading | None
    ) -> Scores:
        score = sigmoid((self._biased_logit(logits) - self._offset) / self._temperature)
        references = asked.references
        if not score >= self.thresholds[0]:
            # No threshold is this low, so the type does not count: that of the nearest statement.
            kind = references[0].bias_type if references else BIAS_TYPES[-1]
            return Scores(score, kind, (), references)
        with native, self._lock:
            reading = reading or self._prefix.read(asked.tokens)
            written = copied_answer(reading, self._model.tokenizer, asked.text)
        pairs = tuple(pair.shifted(asked.start) for pair in written.pairs)
        return Scores(score, written.bias_type, pairs, references)

    def _window_prompts(self, window: Window, index: BiasIndex | None) -> list[_WindowPrompt]:
        """Return the prompts about a window: one, or several about parts of an overlong segment.

        Where a prompt is too long, the context gives way first, the oldest part first, and then
        the references, the least similar first.
        """
        references: tuple[Reference, ...] = ()
        if self._instruction.references:
            references = self._retriever.references(window.text, index)[: self._k]
        while True:
            tokens = self._model.prompt(self._instruction.messages(window, references))
            if self._room is None or len(tokens) <= self._room:
                return [_WindowPrompt(tokens, window.text, 0, references)]
            if window.user is not None:
                window = replace(window, user=None)
            elif window.context:
                window = replace(window, context=window.context[1:])
            elif references:
                references = references[:-1]
            else:
                return self._part_prompts(window.text)

    def _part_prompts(self, text: str) -> list[_WindowPrompt]:
        """Return the prompts about the parts of a segment that is too long, halved until it fits.

        The parts overlap, so that a short claim is whole in one of them.
        """
        middle = len(text) // 2
        overlap = _OVERLAP // 2 if len(text) > 2 * _OVERLAP else 0
        prompts = []
        for start, end in ((0, middle + overlap), (middle - overlap, len(text))):
            inside = self._window_prompts(Window(text[start:end]), None)
            prompts += [one._replace(start=start + one.start) for one in inside]
        return prompts


class GenerativeSession:
    """A generative detector bound to one index version."""

    def __init__(self, detector: Generative, index: BiasIndex | None) -> None:
        self._detector = detector
        self._index = index

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        return None if self._index is None else self._index.version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order."""
        return self._detector.judge(windows, self._index)

    def answers(self, windows: Sequence[Window]) -> list[str]:
        """Return what the model writes freely about each window; see :meth:`Generative.answer`."""
        return [self._detector.answer(window, self._index) for window in windows]


def _placed_model(model: LoadedModel, dtype: Dtype | None) -> LoadedModel:
    """Return the model on the GPU if there is one; raises WeightsError if it is too large."""
    import torch

    if not torch.cuda.is_available():
        return model
    free, _ = torch.cuda.mem_get_info()
    numbers = sum(tensor.numel() for tensor in model.network.parameters())
    number: Dtype = dtype or ("float32" if numbers * BYTES["float32"] < free else "bfloat16")
    need = numbers * BYTES[number]
    if need >= free:
        raise WeightsError(
            f"The model takes {need / 2**30:.1f} GiB of the GPU's memory as {number}, and "
            f"{free / 2**30:.1f} GiB are free: end what else runs there, or name a smaller model."
        )
    network = sharing_copy(model.network, "cuda").to(getattr(torch, number))
    return replace(model, network=network)


def _adapter_points(adapter: Adapter) -> Points:
    """Return an adapter's operating points; raises WeightsError if one lacks a type."""
    points = adapter.settings.operating_points
    try:
        return {
            name: {kind: points[name][kind] for kind in BIAS_TYPES}
            for name in get_args(OperatingPoint)
        }
    except KeyError as error:
        raise WeightsError(
            f"The adapter in {adapter.folder} has no threshold {error} in its operating_points: "
            "train it again (guard train generative)."
        ) from None


def _adapter_instruction(adapter: Adapter | None) -> Instruction:
    """Return the instruction that an adapter was trained with; raises WeightsError if unknown."""
    if adapter is None:
        return Instruction()
    switches, known = adapter.settings.instruction, {field.name for field in fields(Instruction)}
    if set(switches) != known:
        raise WeightsError(
            f"The adapter in {adapter.folder} was trained with the instruction "
            f"{', '.join(sorted(switches))}; this guard knows {', '.join(sorted(known))}: use the "
            "guard that wrote it."
        )
    return Instruction(**switches)


def _first_tokens(model: LoadedModel, place: str) -> tuple[int, int]:
    """Return the tokens that begin the two answers; raises WeightsError if they are the same."""
    yes, no = decision_tokens(model.tokenizer)
    if yes == no:
        raise WeightsError(
            f"{place} cannot be a detector: in its tokens {YES!r} and {NO!r} begin alike."
        )
    return yes, no


def _language_of(text: str) -> str:
    """Return "english", "other" or "unknown", by the encoder's word lists."""
    known = english_words().__contains__
    if mostly_latin(text):
        return language_of(text, known)
    return "unknown" if has_english_clause(latin_part(text), known) else "other"

"""The embedded detector: one network reads each window, with references from the index.

Why: docs/decisions/encoder-is-its-embedder.md.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from guard.detect.attributions import find_attributions
from guard.detect.fusion import FusionHead
from guard.detect.index_watcher import IndexWatcher
from guard.detect.language import has_english_clause, language_of
from guard.detect.lexical import LexicalHead
from guard.detect.network import Network, Pass
from guard.detect.normalise import Normalised, apply_edits, undo_disguises
from guard.detect.respelling import respelling_edits
from guard.detect.runtime import CPU
from guard.detect.script import latin_part, mostly_latin
from guard.detect.slurs import plain_names
from guard.detect.tokens import Encoded, WindowTokens
from guard.detect.weights import (
    FUSION,
    LEXICAL,
    ONNX,
    SHIPPED,
    TABLE,
    TOKENIZER,
    read_weights,
    unusable_file,
)
from guard.errors import BiasIndexError, ConfigError, WeightsError
from guard.forks import Lock, native
from guard.places import shipped_index
from guard.retrieve.embedder import LENGTH_TOLERANCE
from guard.retrieve.index import BiasIndex
from guard.verdict import BIAS_TYPES, Attribution, BiasType, Reference, Scores, Window

Floats = NDArray[np.float32]
T = TypeVar("T")
#: From this many windows on, a call uses several threads.
MANY = 4
# References searched beyond the usual number, in case some do not count.
_MORE = 20


class Seen(NamedTuple):
    """What led to the scores of one input.

    ``out`` is the network's output, ``types`` (9,) are the type logits after references, and
    ``lexical`` is what the n-grams added to the logit.
    """

    encoded: Encoded
    out: Pass
    types: Floats
    lexical: float
    scores: Scores


class Encoder:
    """The embedded detector, and the embedder of its own bias index.

    ``folder`` holds the weights (default: those of ``encoder``). ``index`` is a bias index or its
    folder (default: the shipped one). A folder passed here is watched: new snapshots use its
    latest version. With ``use_references=False`` no index is opened and the text is judged alone.
    ``device`` is what the network runs on, ``cpu`` or ``cuda``.

    Thread-safe: single-threaded ONNX Runtime sessions are shared; each run has its own memory.
    Every window is judged in a run of its own, because the int8 network scales its activations
    over the whole batch; so a score never depends on its batch.

    Raises:
        ConfigError: ONNX Runtime cannot use the device.
        WeightsError: weights are missing or their hashes differ from the recorded ones.
        BiasIndexError: the index is missing, damaged, or was built with other weights.

    """

    @native
    def __init__(
        self,
        folder: Path | None = None,
        index: BiasIndex | Path | None = None,
        use_references: bool = True,
        device: str = CPU,
    ) -> None:
        self._weights, files = read_weights(Path(folder) if folder is not None else SHIPPED)
        settings = self._weights.settings

        def made(name: str, make: Callable[[bytes], T]) -> T:
            try:
                return make(files.pop(name))
            except (WeightsError, ConfigError):
                raise
            except Exception as error:  # three libraries with exceptions of their own
                raise unusable_file(self._weights.folder / name, error) from error

        tokenizer = made(TOKENIZER, Tokenizer.from_buffer)
        #: Turns windows into inputs; public for training and its checks.
        self.tokens = WindowTokens(tokenizer, settings.max_context_tokens)
        self._token_id = tokenizer.token_to_id
        self._fusion = made(FUSION, lambda data: FusionHead.load(BytesIO(data), len(BIAS_TYPES)))
        self._lexical: LexicalHead | None = None
        if LEXICAL in files:
            self._lexical = made(LEXICAL, lambda data: LexicalHead.load(BytesIO(data)))
        # By path: ONNX Runtime reads a file without mapping it, but keeps a copy of bytes.
        files.pop(TABLE, None)  # ONNX Runtime reads it by the network's path
        self._network = made(ONNX, lambda _: Network(self._weights.folder / ONNX, device))
        self._try_files(tokenizer.get_vocab_size() - 1)
        self._index: BiasIndex | None = None
        self._watcher: IndexWatcher | None = None
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0
        if use_references:
            # The shipped index is loaded once: it does not change while a process runs.
            self.use_index(
                index
                if index is not None
                else BiasIndex.load(self.shipped_index, self.name, settings.dim)
            )

    def _try_files(self, last: int) -> None:
        """Raise WeightsError if the files do not belong together; ``last`` is the highest token id.

        So the error is raised at construction, not by the first text.
        """
        folder, dim = self._weights.folder, self._weights.settings.dim
        ids = [*self.tokens.encode("A trial.")[0].ids, last]
        try:
            out = self.run(Encoded(ids, [0] * len(ids), [], []))
            shapes = (out.embedding.shape, out.types.shape, out.spans.shape)
            if shapes != ((dim,), (len(BIAS_TYPES),), (len(ids), 2)):
                raise ValueError
            if not abs(np.linalg.norm(out.embedding) - 1) <= LENGTH_TOLERANCE:
                raise ValueError
            _check_numbers(*out)
        except Exception as error:  # ONNX Runtime has exceptions of its own
            raise unusable_file(folder / ONNX, error) from error
        try:
            reference, kind = out.embedding[None], np.zeros(1, np.int64)
            change = self._fusion.change(out.embedding, out.state, out.logit, reference, kind)
            if change[1].shape != out.types.shape:
                raise ValueError
            _check_numbers(*change)
        except Exception as error:
            raise unusable_file(folder / FUSION, error) from error

    @property
    def name(self) -> str:
        """Name, version and hash of the weights; an index built with other weights is refused."""
        return self._weights.name

    @property
    def weights_digest(self) -> str:
        """The SHA-256 of the manifest, which has the hash of every file of the weights."""
        return self._weights.digest

    @property
    def folder(self) -> Path:
        """The folder of the weights."""
        return self._weights.folder

    @property
    def shipped_index(self) -> Path:
        """The folder of the shipped index that has vectors of this detector."""
        return shipped_index(self._weights.settings.name)

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for ``strict``, ``balanced`` and ``quiet``."""
        return self._weights.settings.operating_points

    @property
    def own_thresholds(self) -> Mapping[str, float]:
        """By source, the most accurate threshold on its validation part; for ``guard eval``."""
        return self._weights.settings.own_thresholds

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages the weights were trained on."""
        return self._weights.settings.languages

    @property
    def index(self) -> BiasIndex | None:
        """The bias index that new snapshots use."""
        return self._index if self._watcher is None else self._watcher.current()

    def use_index(self, index: BiasIndex | Path) -> None:
        """Use another index from the next snapshot on; running sessions keep theirs.

        A folder is watched from now on, instead of the one before.

        Raises:
            BiasIndexError: as for a new encoder.

        """
        dim = self._weights.settings.dim
        if isinstance(index, BiasIndex):
            if index.embedder != self.name:
                raise BiasIndexError(
                    f"The bias index was built with '{index.embedder}' and cannot be searched with "
                    f"'{self.name}'; build it again with these weights."
                )
            if index.dim != dim:
                raise BiasIndexError(
                    f"The bias index has vectors of {index.dim} numbers; those of "
                    f"'{self.name}' have {dim}; build it again with these weights."
                )
            watcher = None
            self._index = index
        else:
            watcher = IndexWatcher(Path(index).absolute(), self.name, dim)
        if self._watcher is not None:
            self._watcher.stop()
        self._watcher = watcher

    def snapshot(self) -> EncoderSession:
        """Return a session that keeps the present index."""
        return EncoderSession(self, self.index)

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return the retrieval vectors of ``texts``: (n, dim) float32 of norm 1."""
        out = np.zeros((len(texts), self._weights.settings.dim), np.float32)
        # Each text in a run of its own, so that vectors do not depend on the threads.
        map_over = map if len(texts) < MANY else self.threads().map
        for row, vector in zip(out, map_over(self._text_embedding, texts), strict=True):
            row[:] = vector
        return out

    @native
    def _text_embedding(self, text: str) -> Floats:
        return self.run(self.tokens.encode(encodable_text(text))[0]).embedding

    @property
    def floor(self) -> float:
        """The least cosine of a reference."""
        return self._weights.settings.floor

    def references(
        self,
        text: str,
        index: BiasIndex | None,
        left_out: Callable[[Reference], bool] | None = None,
    ) -> tuple[Reference, ...]:
        """Return the statements of an index that resemble ``text``, at most five, nearest first.

        Those for which ``left_out`` is true do not count; of so many, the next nearest follow.
        """
        if index is None:
            return ()
        settings = self._weights.settings
        more = 0 if left_out is None else _MORE
        hits = index.search(self.embed([text]), settings.k + more, settings.floor)[0]
        references = map(index.reference, hits)
        kept = (r for r in references if left_out is None or not left_out(r))
        return tuple(islice(kept, settings.k))

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads for calls with many windows: one per core, at most 8."""
        with self._lock:
            # After a fork only the executor is left, without its threads.
            if self._pool is None or self._pool_owner != os.getpid():
                self._pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1), "guard-encoder")
                self._pool_owner = os.getpid()
            return self._pool

    def run(self, encoded: Encoded) -> Pass:
        """Run the network on one input."""
        return self._network.run(encoded)

    @native
    def judge(self, window: Window, index: BiasIndex | None) -> Scores:
        """Score one window; an overlong segment gets the highest score of its parts."""
        written = encodable_text(window.text)
        read = undo_disguises(written, self._is_known_word)
        text = read.text
        if mostly_latin(text):
            language = language_of(text, self._is_known_word)
        else:  # an English clause is judged alone: what is found in it counts
            text = latin_part(text)
            language = "unknown" if has_english_clause(text, self._is_known_word) else "other"
        if language == "other":
            return Scores(unjudged="language")
        earlier = (t for t in (window.user or "", *window.context) if t.strip())
        context = [undo_disguises(encodable_text(t), self._is_known_word).text for t in earlier]
        parts = self.tokens.encode(text, context)
        if self.tokens.unread(text, parts):
            return Scores(unjudged="language")
        best = self._judge_text(text, parts, index)
        for other in self._other_readings(text, context):
            scores = self._judge_text(other.text, self.tokens.encode(other.text, context), index)
            if failures_first(scores) > failures_first(best):
                best = _with_spans_in(scores, other, text)
        # Slang of rare words looks like an unknown language: what is found in it counts.
        if language == "unknown" and not self._finds_bias(best):
            return Scores(unjudged="language")
        return best if read.text == written else _with_spans_in(best, read, written)

    def _other_readings(self, text: str, context: Sequence[str]) -> list[Normalised]:
        """Return what a text may also mean: its slips mended, its slurs in plain words."""
        as_read = Normalised(text)
        mended = apply_edits(
            as_read, respelling_edits(text, " ".join(context), self._is_known_word)
        )
        plain = apply_edits(mended, plain_names(mended.text))
        return [r for r, before in ((mended, as_read), (plain, mended)) if r is not before]

    def _judge_text(self, text: str, parts: list[Encoded], index: BiasIndex | None) -> Scores:
        """Return the highest score of the parts of a text."""
        # The n-gram model reads the whole segment, also if the network reads it in parts.
        lexical = 0.0
        if self._lexical is not None:
            lexical = self._weights.settings.lexical_weight * self._lexical.logit(text)
        return max((self._judge_part(text, p, lexical, index) for p in parts), key=failures_first)

    def _finds_bias(self, scores: Scores) -> bool:
        """Whether a score is biased at ``strict``, the lowest thresholds."""
        assert scores.score is not None
        assert scores.bias_type is not None
        return scores.score >= self.operating_points["strict"][scores.bias_type]

    def _is_known_word(self, word: str) -> bool:
        return self._token_id(word) is not None

    def _judge_part(
        self, text: str, encoded: Encoded, lexical: float, index: BiasIndex | None
    ) -> Scores:
        settings = self._weights.settings
        out = self.run(encoded)
        logit, types = out.logit, out.types
        references: tuple[Reference, ...] = ()
        if index is not None:
            hits = index.search(out.embedding[None], settings.k, settings.floor)[0]
            if hits:
                rows = [h.row for h in hits]
                change, type_change = self._fusion.change(
                    out.embedding, out.state, logit, index.vectors_of(rows), index.types_of(rows)
                )
                logit, types = logit + change, types + type_change
                references = tuple(index.reference(h) for h in hits)
        scaled = (logit + lexical - settings.offset) / settings.temperature
        score = sigmoid(scaled)
        kind = BIAS_TYPES[int(types.argmax())]
        implied = sigmoid(out.implied)
        pairs = find_attributions(text, encoded, out.spans)
        scores = Scores(score, kind, pairs, references, implied=implied)
        self.saw(Seen(encoded, out, types, lexical, scores))
        return scores

    def saw(self, seen: Seen) -> None:
        """Do nothing; called once for every input of a window, for what builds on an encoder."""


class EncoderSession:
    """The encoder bound to one index version."""

    def __init__(self, encoder: Encoder, index: BiasIndex | None) -> None:
        self._encoder = encoder
        self._index = index

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        return None if self._index is None else self._index.version

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order."""
        if len(windows) < MANY:
            return [self._encoder.judge(w, self._index) for w in windows]
        return list(self._encoder.threads().map(self._judge_window, windows))

    def _judge_window(self, window: Window) -> Scores:
        return self._encoder.judge(window, self._index)


# Lone surrogates, from JSON escapes; LiteLLM passes them on.
_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable_text(text: str) -> str:
    """Return ``text`` with each lone surrogate replaced by U+FFFD, which keeps the offsets."""
    return _SURROGATE.sub("\ufffd", text)


def _with_spans_in(scores: Scores, read: Normalised, written: str) -> Scores:
    """Return the scores of a text as read with the spans of the text as written."""
    return replace(
        scores, attributions=tuple(_as_written(p, read, written) for p in scores.attributions)
    )


def _as_written(pair: Attribution, read: Normalised, written: str) -> Attribution:
    group, attribute = read.original(pair.group_span), read.original(pair.attribute_span)
    return Attribution(written[slice(*group)], written[slice(*attribute)], group, attribute)


def _check_numbers(*values: Floats | float) -> None:
    """Raise ValueError unless all values are finite."""
    if not all(np.isfinite(value).all() for value in values):
        raise ValueError


def sigmoid(x: float) -> float:
    """Return the logistic function; nan stays nan."""
    # The exponential of a large number would overflow.
    small = math.exp(-abs(x))
    return 1 / (1 + small) if x >= 0 else small / (1 + small)


def failures_first(scores: Scores) -> float:
    """Rank what is no number above all scores, so that it is the detector's failure."""
    score = scores.score
    return math.inf if score is None or math.isnan(score) else score

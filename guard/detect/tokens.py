"""Encodes a window as the encoder's input, in training and at run time.

``<s> segment </s>`` with token type 0, then ``context </s>`` with type 1 if there is context. BERT
vocabularies name these tokens ``[CLS]`` and ``[SEP]``. MPNet's holds both pairs, but MPNet was
trained with ``<s>`` and ``</s>`` only. No token of the segment is ever dropped: the context is
truncated first, and a segment longer than the model's positions is read in overlapping parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from guard.errors import WeightsError

_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
MAX_TOKENS = 512
_PART_OVERLAP = 64


class Encoded(NamedTuple):
    """One input: ids, token types, and the segment tokens' character ranges.

    ``offsets[i]`` belongs to ``ids[i + 1]``; both count only the segment's own tokens, so
    ``len(offsets) == types.count(0) - 2``. ``words[i]`` is the number of the word that
    segment token i is part of, -1 if none.
    """

    ids: list[int]
    types: list[int]
    offsets: list[tuple[int, int]]
    words: list[int]


def _special_count(tokenizer: Tokenizer, *names: str) -> int:
    ids: list[int | None] = [tokenizer.token_to_id(name) for name in names]
    known = [number for number in ids if number is not None]
    if not known:
        raise WeightsError(f"The tokenizer has no {names[0]}: it is not the encoder's.")
    return known[0]


class WindowTokens:
    """Encodes segments with their context. Thread-safe: the tokenizer is only read."""

    def __init__(self, tokenizer: Path | Tokenizer, max_context_tokens: int = 64) -> None:
        """Read ``tokenizer.json``; its own truncation and padding are switched off.

        ``max_context_tokens`` of the context are kept, the last ones. Raises WeightsError if the
        tokenizer has no start, end or padding token.
        """
        frame = (
            tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.from_file(str(tokenizer))
        )
        frame.no_truncation()
        frame.no_padding()
        self._tokenizer = frame
        self._max_context = max_context_tokens
        self._cls = _special_count(frame, "<s>", "[CLS]")
        self._sep = _special_count(frame, "</s>", "[SEP]")
        self._unknown = frame.token_to_id("[UNK]")
        #: The padding token.
        self.pad = _special_count(frame, "<pad>", "[PAD]")

    def encode(self, text: str, context: Sequence[str] = ()) -> list[Encoded]:
        """Return the inputs for one window: one, or several parts of an overlong segment.

        ``context`` is in order, oldest first; its last tokens are used.
        """
        whole = self._tokenizer.encode(text, add_special_tokens=False)
        earlier: list[int] = []
        if context:
            joined = " ".join(context)
            earlier = self._tokenizer.encode(joined, add_special_tokens=False).ids
        room = MAX_TOKENS - 2
        if len(whole.ids) <= room:
            return [self._encoded_part(whole.ids, whole.offsets, whole.word_ids, earlier)]
        parts = []
        for start in range(0, len(whole.ids) - _PART_OVERLAP, room - _PART_OVERLAP):
            cut = slice(start, start + room)
            parts.append(
                self._encoded_part(whole.ids[cut], whole.offsets[cut], whole.word_ids[cut], [])
            )
        return parts

    def unread(self, text: str, parts: Sequence[Encoded]) -> bool:
        """Whether the tokenizer does not know half or more of a segment's words of Latin letters.

        ``parts`` are those of :meth:`encode`. A word with an unknown character, or of over a
        hundred letters, is one unknown token.
        """
        if not any(self._unknown in part.ids for part in parts):
            return False
        known: set[tuple[int, int]] = set()
        unknown: set[tuple[int, int]] = set()
        for i, part in enumerate(parts):
            tokens = zip(part.ids[1:], part.words, part.offsets, strict=False)  # the segment's own
            for token, word, span in tokens:
                if _LATIN.search(text, *span):
                    (unknown if token == self._unknown else known).add((i, word))
        return len(unknown) >= max(len(known), 1)

    def _encoded_part(
        self,
        ids: list[int],
        offsets: list[tuple[int, int]],
        words: Sequence[int | None],
        earlier: list[int],
    ) -> Encoded:
        room = min(self._max_context, MAX_TOKENS - 3 - len(ids))
        context = earlier[-room:] if room > 0 else []
        tail = [*context, self._sep] if context else []
        return Encoded(
            ids=[self._cls, *ids, self._sep, *tail],
            types=[0] * (len(ids) + 2) + [1] * len(tail),
            offsets=list(offsets),
            words=[-1 if w is None else w for w in words],
        )

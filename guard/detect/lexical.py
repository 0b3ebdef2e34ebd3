r"""A linear model over hashed word and character n-grams, beside the network.

Small sentence encoders capture the meaning but not the wording; n-grams capture only the wording.
The sum is more accurate than either ("wide and deep", Cheng et al. 2016). For each of two blocks
(word n-grams of 1 to 3, character n-grams of 2 to 5 inside words) a text's vector has
:math:`x_g = (1 + ln\, tf_g)\, idf_g`, scaled to norm 1; the logit is :math:`w \cdot x + b`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import IO, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

BUCKETS = 1 << 16  # of each block
_WORD = re.compile(r"\w\w+")
_WORD_LENGTHS = (1, 2, 3)
_CHAR_LENGTHS = (2, 3, 4, 5)

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class Grams(NamedTuple):
    """The buckets of one text and their counts; character n-grams are offset by BUCKETS."""

    ids: Ids
    counts: Floats


def hashed_grams(text: str) -> Grams:
    """Return the hashed n-grams of a text, whatever its case."""
    folded = text.casefold()
    words = _WORD.findall(folded)
    grams = [
        crc32(" ".join(words[i : i + n]).encode()) % BUCKETS
        for n in _WORD_LENGTHS
        for i in range(len(words) - n + 1)
    ]
    for token in folded.split():
        # A longer token is not a word; its first letters suffice.
        padded = f" {token[:64]} ".encode()
        grams += [
            BUCKETS + crc32(padded[i : i + n]) % BUCKETS
            for n in _CHAR_LENGTHS
            for i in range(max(1, len(padded) - n + 1))
        ]
    counts = Counter(grams)
    return Grams(
        np.fromiter(counts, np.int64, len(counts)),
        np.fromiter(counts.values(), np.float32, len(counts)),
    )


def gram_values(grams: Grams, idf: Floats) -> Floats:
    """Return the weighted, normalised entries of a text's vector, in the order of ``one.ids``."""
    x: Floats = (1 + np.log(grams.counts)) * idf[grams.ids]
    word = grams.ids < BUCKETS
    for block in (word, ~word):
        norm = float(np.sqrt((x[block] ** 2).sum()))
        if norm > 0:
            x[block] /= norm
    return x


class LexicalHead:
    """The trained model. Thread-safe: it is only read."""

    def __init__(self, idf: Floats, weight: Floats, bias: float) -> None:
        self.idf = np.ascontiguousarray(idf, np.float32)
        self.weight = np.ascontiguousarray(weight, np.float32)
        self.bias = bias

    @classmethod
    def load(cls, file: Path | IO[bytes]) -> LexicalHead:
        """Read ``idf`` and ``weight`` (2 * BUCKETS,) and ``bias`` from an npz file."""
        with np.load(file, allow_pickle=False) as stored:
            head = cls(stored["idf"], stored["weight"], float(stored["bias"]))
        if not head.idf.shape == head.weight.shape == (2 * BUCKETS,):
            raise ValueError
        if not np.isfinite([head.idf.sum(), head.weight.sum(), head.bias]).all():
            raise ValueError
        return head

    def logit(self, text: str) -> float:
        """Return the logit of "biased" by the wording alone."""
        grams = hashed_grams(text)
        return float(gram_values(grams, self.idf) @ self.weight[grams.ids]) + self.bias

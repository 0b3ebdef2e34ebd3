"""A part of an audit, for a machine or a build of its own: ``--shard 3/8``.

Whether an item is in a shard depends on its id alone, so that it stays there when the sample grows
or the suite orders its items anew. All shards together have each item of the sample once.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from guard.errors import UsageError

_FORM = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})", re.ASCII)


class Shard(NamedTuple):
    """The shard ``number`` of ``total``; numbers start at 1."""

    number: int
    total: int

    @classmethod
    def of_text(cls, text: str) -> Shard:
        """Return the shard written as ``I/N``; raises UsageError."""
        match = _FORM.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise UsageError(f"A shard is I/N with I from 1 to N, such as 3/8, not {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def has_item(self, item: str) -> bool:
        """Return whether the item with this id is in the shard."""
        return self.number_of(item) == self.number

    def number_of(self, item: str) -> int:
        """Return the number of the shard that has the item with this id."""
        digest = hashlib.sha256(item.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.total + 1

    @property
    def words(self) -> str:
        """The shard in words."""
        return f"shard {self.number} of {self.total}"

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

"""The README as an index of packages shows it: without what leads into the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_NAVIGATION = re.compile(r"(^\[[^\n]+\]\(docs/[^\n]+\n){2,}\n|^## Links\n.*?(?=^\*\*)", re.M | re.S)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
_PICTURE = re.compile(r"^!\[[^\n]*\n", re.M)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)


class Readme(MetadataHookInterface):
    """Makes the field ``readme``: a relative link becomes its words, a list of links goes."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        for pattern, shown in ((_NAVIGATION, ""), (_COMMENT, ""), (_PICTURE, ""), (_LINK, r"\1")):
            text = pattern.sub(shown, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

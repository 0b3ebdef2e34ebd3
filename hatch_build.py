"""The README as an index of packages shows it: without what leads into the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_NAVIGATION = re.compile(r"(^\[[^\n]+\]\(docs/[^\n]+\n)+\n|^## Links\n.*?(?=^\*\*)", re.M | re.S)
_PICTURES = re.compile(r"^(!\[[^\n]+\n)+\n", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
_COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)


class Readme(MetadataHookInterface):
    """Makes the field ``readme``: a relative link becomes its words; pictures, link lists go."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        for pattern, shown in ((_NAVIGATION, ""), (_PICTURES, ""), (_COMMENT, ""), (_LINK, r"\1")):
            text = pattern.sub(shown, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

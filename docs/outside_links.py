"""A hook of MkDocs: links to files outside ``docs`` become those files' paths.

In the repository such a link opens the file. The site does not hold it, so there its path stands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's text with every link that leaves ``docs`` replaced."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        words, target = link.groups()
        file = (folder / target.partition("#")[0]).resolve()
        if file.is_relative_to(ROOT / "docs"):
            return link[0]
        path = f"`{file.relative_to(ROOT)}`"
        return path if words.strip("`") in (path.strip("`"), file.name) else f"{words} ({path})"

    return _LINK.sub(shown, markdown)

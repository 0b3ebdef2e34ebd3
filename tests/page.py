"""Runs the code of a page: ``python -m tests.page``, with its blocks as JSON on standard input.

A block is a list of language, file name and code. A file is written, Python runs in one namespace,
``await`` at its top level included, and shell code runs in the same folder.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for language, title, code in json.load(sys.stdin):
        if title:
            Path(title).write_text(code, encoding="utf-8")
        elif language == "sh":
            sys.stdout.flush()
            subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
        elif language == "python":
            compiled = compile(code, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if compiled.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(compiled, names))
            else:
                exec(compiled, names)


if __name__ == "__main__":
    main()

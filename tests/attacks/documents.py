"""Random documents with planted phrases: none goes out, and what does is read as it was.

``python -m tests.attacks.documents --count 50000``. A document is Markdown, HTML, JSON, JSON lines
or code, or one in another. What parsers see of the redacted one must be what they see of the
original, but for the text of the passages with a phrase. A seed makes the same document again.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import click

from guard import Guard
from tests.gate.test_documents import parsed, tree
from tests.gate.test_json_text import MARK
from tests.scripted import Scripted

PHRASE = "women are lazy"
_HALVES = re.compile("women|lazy")
_WORDS = (
    'rain river bridge tea morning while older (or *then* **so** _it_ `x` "yes" “no” a) 3.14 e.g. '
    "naïve 字典 👩‍🚀 don't x_y & <br> [1] 5 * well-known 50% :) U.S. no. et al."
).split(" ")
_ENDS = (". ", "! ", "? ", "... ", ".\n", ": ")
_POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"hold": "association"},
    {"max_segment_chars": 100, "overlap": 19, "lookahead": 8},
    {"scope": "response", "context_segments": 0},
)


class Document(NamedTuple):
    """A text, how many phrases are in it, and how what came of it is compared with it."""

    kind: str
    text: str
    plants: int
    broken: Callable[[str], str]


class Writer:
    """Writes the documents of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.plants = 0

    def words(self, most: int = 12, *, plain: bool = False) -> str:
        words = [w for w in _WORDS if not plain or w.isalpha()]
        return " ".join(self.rng.choices(words, k=self.rng.randint(1, most)))

    def said(self, *, plain: bool = False) -> str:
        """Return a sentence without its end, one in five with a phrase."""
        if self.rng.random() >= 0.2:
            return self.words(plain=plain)
        self.plants += 1
        form = self.rng.choice(("{}", "**{}**", '"{}"', "({})", "_{}_", "`{}`", "“{}”"))
        phrase = PHRASE if plain else form.format(PHRASE)
        around = [self.words(self.rng.choice((3, 3, 60)), plain=plain), phrase]
        if self.rng.random() < 0.5:
            around.append(self.words(5, plain=plain))
        return " ".join(around[self.rng.randint(0, 1) :])

    def prose(self, *, plain: bool = False) -> str:
        parts = [
            self.said(plain=plain) + self.rng.choice(_ENDS) for _ in range(self.rng.randint(1, 4))
        ]
        return "".join(parts).rstrip()

    def line(self) -> str:
        return " ".join(self.prose().split("\n"))

    def block(self) -> str:
        kind = self.rng.randint(0, 7)
        if kind == 0:
            return f"{'#' * self.rng.randint(1, 4)} {self.said(plain=True)}"
        if kind == 1:
            marker = self.rng.choice(("- ", "* ", "1. ", "- [x] "))
            return "\n".join(marker + self.line() for _ in range(self.rng.randint(1, 4)))
        if kind == 2:
            return "\n".join("> " + line for line in self.prose().split("\n"))
        if kind == 3:
            row = "| " + " | ".join(self.said(plain=True) for _ in range(3)) + " |"
            return f"| a | b | c |\n|---|---|---|\n{row}\n| 1 | 2 | 3 |"
        if kind == 5:
            return f"```python\n{self.code()}\n```"
        if kind == 6:
            indent = self.rng.choice((None, 2))
            return f"```json\n{json.dumps(self.value(), indent=indent)}\n```"
        return self.prose()

    def markdown(self) -> str:
        return "\n\n".join(self.block() for _ in range(self.rng.randint(1, 6))) + "\n"

    def html(self, depth: int = 3) -> str:
        tag = self.rng.choice(("div", "p", "ul", "table", "blockquote", "section", "h2"))
        held = self.rng.choice(("", ' class="a b"', ' title="x. y"'))
        if tag == "ul":
            inner = "".join(f"<li>{self.inline()}</li>\n" for _ in range(self.rng.randint(1, 3)))
            return f"<ul{held}>\n{inner}</ul>"
        if tag == "table":
            cells = "".join(f"<td>{self.inline()}</td>" for _ in range(self.rng.randint(1, 3)))
            return f"<table{held}><tbody>\n<tr>{cells}</tr>\n</tbody></table>"
        if tag in ("p", "h2") or depth == 0:
            return f"<{tag}{held}>{self.inline()}</{tag}>"
        inner = "\n".join(self.html(depth - 1) for _ in range(self.rng.randint(1, 3)))
        return f"<{tag}{held}>\n{inner}\n</{tag}>"

    def inline(self) -> str:
        said = self.said(plain=True)
        tag = self.rng.choice(("", "", "b", "em", "span", "code"))
        return f"<{tag}>{said}.</{tag}> {self.words(plain=True)}" if tag else f"{said}. Fine."

    def value(self, depth: int = 3) -> Any:
        kind = self.rng.randint(0, 9) if depth else 9
        if depth == 3 or kind < 3:
            if self.rng.random() < 0.6:
                names = self.rng.sample(
                    ("a", "b c", 'q"', "é", "名", "k-1"), self.rng.randint(0, 4)
                )
                return {name: self.value(depth - 1) for name in names}
            return [self.value(depth - 1) for _ in range(self.rng.randint(0, 4))]
        if kind == 3:
            return self.rng.choice((1, -2.5e-7, True, None, False, 10**15))
        if kind == 4:
            return self.rng.choice(("", " ", "\\", "{", '["a"]', "\n"))
        if kind == 5:
            return self.markdown()
        return self.prose()

    def encoded(self, value: Any) -> str:
        spaces = self.rng.choice((None, (",", ":"), (" , ", " : ")))
        ascii = self.rng.random() < 0.5
        indent = self.rng.choice((None, None, 1, 4))
        return json.dumps(value, ensure_ascii=ascii, indent=indent, separators=spaces)

    def code(self) -> str:
        """Return statements; a phrase is a comment or a string in a line of its own."""
        said = PHRASE if self.rng.random() < 0.4 else "fine"
        self.plants += said == PHRASE
        piece = self.rng.choice(
            (
                f"# {said}",
                f'"""{said}."""',
                f'z = [\n    1,\n    "{said}",\n    2,\n]',
                f'def g(a):\n    """{said}."""\n    return a',
                f"for i in x:\n    # {said}\n    f(i)",
                f'h(\n    1,\n    "{said}",\n)',
            )
        )
        lines = self.rng.choices(("x = [1, (2), {3: 4}]", "if x:\n    f(x)", 'y = "a" * 2'), k=4)
        lines.insert(self.rng.randint(0, 4), piece)
        return "\n".join(lines)


def document(seed: int) -> Document:
    """Return the document of a seed."""
    writer = Writer(seed)
    kind = writer.rng.choice(("markdown", "html", "json", "json lines", "code"))
    if kind == "markdown":
        text = writer.markdown()
        return Document(kind, text, writer.plants, lambda out: _other(blocks(text), blocks(out)))
    if kind == "html":
        text = writer.html() + "\n"
        return Document(kind, text, writer.plants, lambda out: _other(tree(text), tree(out)))
    if kind == "code":
        inner = writer.code()
        text = f"Here:\n\n```python\n{inner}\n```\n\nThat is it.\n"
        return Document(kind, text, writer.plants, lambda out: _other_code(inner, out))
    values = [
        writer.value() for _ in range(writer.rng.randint(2, 4) if kind == "json lines" else 1)
    ]
    if kind == "json":
        text = writer.encoded(values[0])
    else:
        text = "".join(json.dumps(value) + "\n" for value in values)

    def broken(out: str) -> str:
        lines = out.splitlines() if kind == "json lines" else [out]
        try:
            made = [json.loads(line) for line in lines]
        except ValueError as error:
            return f"not parsed: {error}"
        return _other([_emptied(v) for v in values], [_emptied(v) for v in made])

    return Document(kind, text, writer.plants, broken)


def blocks(text: str) -> list[Any]:
    """Return the tree of a document's blocks, without their text."""
    return [block[:5] for block in parsed(text)]


def _emptied(value: Any) -> Any:
    """Return a value without what may differ: strings with something removed."""
    if isinstance(value, dict):
        return {key: _emptied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_emptied(one) for one in value]
    if isinstance(value, str) and (_HALVES.search(value) or MARK in value):
        return "..."
    return value


def _other(wanted: Any, found: Any) -> str:
    return "" if wanted == found else f"wanted {wanted}\nfound  {found}"


def _other_code(code: str, out: str) -> str:
    found = re.fullmatch(r"Here:\n\n```python\n(.*)\n```\n\nThat is it\.\n", out, re.DOTALL)
    if found is None:
        return "the fence is another"
    try:
        made = ast.parse(found[1]).body
    except SyntaxError as error:
        return f"not parsed: {error}"
    return _other(len(ast.parse(code).body), len(made))


def faults(seed: int) -> list[tuple[str, str]]:
    """Return what is wrong with what comes of a seed's document: kinds, and what shows them."""
    made = document(seed)
    rng = random.Random(-seed - 1)
    policy = rng.choice(_POLICIES)
    guard = Guard(detector=Scripted(PHRASE), action="redact", **policy)
    size = rng.choice((1, 3, 10, 40, 300))
    text = made.text
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    out = "".join(guard.stream(pieces))
    found = []
    # With "association" what stands before the first group is out.
    if re.search("lazy" if "hold" in policy else "women|lazy", _decoded(out)):
        found.append(("leak", out))
    if made.plants == 0 and out != text:
        found.append(("over-block", out))
    if broken := made.broken(out):
        found.append((f"broken {made.kind}", f"{broken}\n{text!r}\n{out!r}"))
    if size < len(text) and out != "".join(guard.stream([text])):
        found.append(
            ("chunking", f"{size} {policy} {text!r}\n{out!r}\n{''.join(guard.stream([text]))!r}")
        )
    return found


def _decoded(text: str) -> str:
    return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)


def _some(seeds: range) -> list[tuple[int, str, str]]:
    return [(seed, *fault) for seed in seeds for fault in faults(seed)]


@click.command()
@click.option("--count", type=int, default=50_000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="The first.")
@click.option("--processes", type=int, default=2, show_default=True)
def main(count: int, seed: int, processes: int) -> None:
    """Attack with documents; exit 1 if anything is found."""
    step = 500
    parts = [range(at, min(at + step, seed + count)) for at in range(seed, seed + count, step)]
    kinds: Counter[str] = Counter()
    shown = 0
    with ProcessPoolExecutor(processes) as pool:
        for done, found in enumerate(pool.map(_some, parts), 1):
            for number, kind, told in found:
                kinds[kind] += 1
                shown += 1
                if shown <= 10:
                    click.echo(f"{number} {kind}: {told}\n")
            if done % 10 == 0:
                click.echo(f"{done * step} documents, found: {dict(kinds) or 'nothing'}")
    click.echo(f"{count} documents, found: {dict(kinds) or 'nothing'}")
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()

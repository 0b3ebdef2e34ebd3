"""What is released around a removed piece is read as it was, as parsers of documents see it."""

from __future__ import annotations

import ast
import re
from typing import Any

import html5lib
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.gate.test_layout import MARK, shown
from tests.rows import examples

MARKDOWN = MarkdownIt("commonmark").enable("table").enable("strikethrough")
PLAIN = [
    "So it is.",
    "One (or two) is.",
    '"Yes," she said.',
    "It is *so* and **so**.",
    "x_y is `z`.",
]
BIASED = [
    "BIAS is so.",
    "**BIAS is it.**",
    "It (BIAS) is.",
    '"BIAS it is."',
    "`BIAS` is so.",
    "*It BIAS is* so.",
    "_BIAS_ it is",
    "BIAS :) it is.",
]
sentences = st.sampled_from(PLAIN)
MARKERS = ["- ", "* ", "1. ", "> ", "- [ ] ", "> - "]


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """A block of Markdown, in which PIECE may stand."""
    piece = draw(sentences | st.just("PIECE"))
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return f"{'#' * draw(st.integers(1, 4))} {piece.rstrip('.')}"
    if kind == 1:
        lines = [piece, *draw(st.lists(sentences, min_size=1, max_size=3))]
        return " ".join(draw(st.permutations(lines)))
    if kind == 2:
        marker = draw(st.sampled_from(MARKERS))
        items = draw(st.permutations([piece, *draw(st.lists(sentences, max_size=3))]))
        return "\n".join(f"{marker}{item}" for item in items)
    if kind == 3:
        items = draw(st.permutations([piece, *draw(st.lists(sentences, max_size=2))]))
        return "- Begin.\n" + "\n".join(f"  - {item}" for item in items)
    if kind == 4:
        cells = draw(st.permutations(["x", piece, "y z"]))
        return f"| a | b | c |\n|---|---|---|\n| {' | '.join(cells)} |\n| 1 | 2 | 3 |"
    if kind == 5:
        fence = draw(st.sampled_from(["```", "~~~", "```python"]))
        lines = draw(st.permutations(["x = 1", f"# {piece}", "f(x)"]))
        return "\n".join([fence, *lines, fence[:3]])
    return f"**Note.** {piece} *And so.*"


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, str]:
    """A document of Markdown and the piece in it."""
    parts = draw(st.lists(blocks(), min_size=1, max_size=5))
    if not any("PIECE" in part for part in parts):
        parts.insert(draw(st.integers(0, len(parts))), "PIECE")
    at = draw(st.sampled_from([n for n, part in enumerate(parts) if "PIECE" in part]))
    parts = [p if n == at else p.replace("PIECE", "Fine.") for n, p in enumerate(parts)]
    piece = draw(st.sampled_from(BIASED))
    return "\n\n".join(parts).replace("PIECE", piece) + "\n", piece


def parsed(text: str) -> list[Any]:
    """Return the tree of a document's blocks, and the text of each line of text."""
    tokens = MARKDOWN.parse(text)
    return [
        (t.type, t.tag, t.nesting, t.level, t.markup, t.content if t.type == "inline" else None)
        for t in tokens
    ]


@given(document=documents(), size=st.integers(1, 60))
@examples(400)
def test_markdown_keeps_the_tree_of_its_blocks(document: tuple[str, str], size: int) -> None:
    text, _ = document
    out = shown(text, size)
    assert "BIAS" not in out
    assert MARK in out
    assert out == shown(text, len(text))
    before, after = parsed(text), parsed(out)
    assert [block[:5] for block in after] == [block[:5] for block in before], out
    for old, new in zip(before, after, strict=True):
        if old[5] is not None and "BIAS" not in old[5] and "|" not in text:
            assert old[5] == new[5]
    for old, new in zip(text.splitlines(), out.splitlines(), strict=True):
        assert new == old or "BIAS" in old


INNER = ["b", "em", "span", "code", "a"]


def element(tag: str, inner: str) -> str:
    held = f' class="x" href="/{tag}"' if tag in ("a", "div") else ""
    return f"<{tag}{held}>{inner}</{tag}>"


texts = st.sampled_from(["So it is.", "x", "Fine. So.", "PIECE", "It is. PIECE Fine."])
lines = st.one_of(
    texts.map(lambda text: element("p", text)),
    st.tuples(st.sampled_from(INNER), texts).map(lambda one: element("p", element(*one))),
    st.tuples(texts, texts).map(
        lambda cells: element("table", element("tr", "".join(element("td", c) for c in cells)))
    ),
    st.lists(texts, min_size=1, max_size=3).map(
        lambda items: "<ul>\n" + "".join(element("li", i) + "\n" for i in items) + "</ul>"
    ),
    st.just("<hr><br/>"),
)


def tree(text: str) -> list[Any]:
    """Return the names of a page's elements as a browser reads them, in the order of the tree."""

    def walk(node: Any, depth: int) -> list[Any]:
        found = [(depth, node.tag)]
        for child in node:
            found += walk(child, depth + 1)
        return found

    return walk(html5lib.parse(text, namespaceHTMLElements=False), 0)


@given(
    inner=st.lists(lines, min_size=1, max_size=4),
    around=st.booleans(),
    indent=st.sampled_from(["", "  "]),
    size=st.integers(1, 60),
)
@examples(400)
def test_html_keeps_its_tree(inner: list[str], around: bool, indent: str, size: int) -> None:
    text = "".join(f"{indent}{line}\n" for line in inner)
    if around:
        text = f"<div>\n{text}</div>\n"
    text = text.replace("PIECE", "BIAS is so.")
    out = shown(text, size)
    assert "BIAS" not in out
    assert out == shown(text, len(text))
    assert tree(out) == tree(text), out
    for old, new in zip(text.splitlines(), out.splitlines(), strict=True):
        assert new == old or "BIAS" in old
        assert (MARK in new) == ("BIAS" in old)


CODE = ["x = 1", "def f(a):\n    return a", 'y = {"a": [1, 2]}', "for i in (1, 2):\n    print(i)"]
BIASED_CODE = [
    "# BIAS is so",
    '"BIAS is so"',
    '"""BIAS is so."""',
    "BIAS = 1",
    'print("BIAS is so", 2)',
    'z = [\n    1,\n    "BIAS is so",\n    2,\n]',
    'def g():\n    """BIAS is so."""\n    return 1',
    "def g():\n    # BIAS is so\n    return 1",
    "def g():\n    return f(BIAS)",
    'h(\n    1,\n    "BIAS",\n)',
]


@given(
    before=st.lists(st.sampled_from(CODE), max_size=3),
    piece=st.sampled_from(BIASED_CODE),
    behind=st.lists(st.sampled_from(CODE), max_size=3),
    size=st.integers(1, 60),
)
@examples(200)
def test_code_is_still_parsed(before: list[str], piece: str, behind: list[str], size: int) -> None:
    code = "\n".join([*before, piece, *behind])
    out = shown(f"So:\n\n```python\n{code}\n```\n\nThat is it.\n", size)
    assert "BIAS" not in out
    found = re.fullmatch(r"So:\n\n```python\n(.*)\n```\n\nThat is it\.\n", out, re.DOTALL)
    assert found is not None
    kept = [ast.unparse(node) for node in ast.parse(found[1]).body]
    wanted = [ast.unparse(node) for node in ast.parse(code).body if "BIAS" not in ast.unparse(node)]
    assert [one for one in kept if one in wanted] == wanted

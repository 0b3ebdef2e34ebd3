"""Texts of others: on a terminal, in XML and in Markdown."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from guard.texts import for_markdown, for_xml, normalised, one_line, printable

texts = st.text(st.characters(exclude_categories=()), max_size=60)


def test_what_a_terminal_acts_upon_is_replaced() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a\ufffd[2Jb\ufffdc"
    assert normalised("  Old\n PEOPLE ") == "old people"


@given(texts)
def test_any_text_is_well_formed_xml(text: str) -> None:
    element = ElementTree.Element("a", b=one_line(text))
    element.text = for_xml(text)
    written = ElementTree.tostring(element, encoding="utf-8")
    read = etree.fromstring(written)
    assert (read.text or "") == for_xml(text).replace("\r\n", "\n").replace("\r", "\n")


@given(texts)
def test_any_text_is_one_cell_of_a_table_in_markdown(text: str) -> None:
    told = for_markdown(text)
    assert "\n" not in told
    bare = re.sub(r"\\.", "", told)
    assert not set(bare) & set("|<>`[]*_~#$&\\")
    assert not re.search(r"[@#]\w", told)

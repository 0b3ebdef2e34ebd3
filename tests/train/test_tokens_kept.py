"""A release leaves out the tokens that no English text has, and reads English as before."""

from __future__ import annotations

import json
from unicodedata import normalize

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from guard.detect.tokens import WindowTokens
from guard.train.base import base_folder
from guard.train.encoder import untrained
from guard.train.export import with_tokens, without_other_scripts

WHOLE = json.loads((base_folder("minilm") / "tokenizer.json").read_bytes())
SMALLER, KEPT = without_other_scripts(WHOLE)
BEFORE = WindowTokens(Tokenizer.from_str(json.dumps(WHOLE)))
AFTER = WindowTokens(Tokenizer.from_str(json.dumps(SMALLER)))


# The tokenizer reads lower case without accents; some letters become others outside the block.
LATIN = "".join(c for c in map(chr, range(0x250)) if normalize("NFD", c.lower())[0] < "\u0250")


@settings(max_examples=300)
@given(st.text(LATIN))
def test_latin_text_becomes_the_same_tokens(text: str) -> None:
    for old, new in zip(BEFORE.encode(text), AFTER.encode(text), strict=True):
        assert [KEPT[number] for number in new.ids] == old.ids
        assert (new.types, new.offsets) == (old.types, old.offsets)


def test_tokens_of_other_scripts_and_of_no_text_are_left_out() -> None:
    assert len(KEPT) == len(SMALLER["model"]["vocab"]) < len(WHOLE["model"]["vocab"]) - 2000
    assert not SMALLER["model"]["vocab"].keys() & {"[unused7]", "д", "中"}


def test_the_smaller_network_gives_the_same_outputs() -> None:
    nets = untrained({"base": "minilm"}).eval()
    smaller = with_tokens(nets, KEPT).eval()
    one, other = (t.encode("Old people are slow.")[0] for t in (BEFORE, AFTER))
    with torch.no_grad():
        found = [
            network.net(torch.tensor([e.ids]), torch.ones(1, len(e.ids), dtype=torch.long),
                        torch.tensor([e.types]))
            for network, e in ((nets, one), (smaller, other))
        ]  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

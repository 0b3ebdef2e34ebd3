"""A release leaves out the tokens that no English text has, and reads English as before."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from guard.detect.tokens import WindowTokens
from tests.rows import examples


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global base_folder, torch, untrained_nets, with_tokens, without_other_scripts
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    import torch

    from guard.train.base import base_folder
    from guard.train.encoder import untrained_nets
    from guard.train.export import with_tokens, without_other_scripts


class Tokenizers(NamedTuple):
    """The published tokenizer, the smaller one, and which tokens of the first the second kept."""

    whole: dict[str, Any]
    smaller: dict[str, Any]
    kept: list[int]
    before: WindowTokens
    after: WindowTokens


@pytest.fixture(scope="module")
def of() -> Tokenizers:
    whole = json.loads((base_folder("minilm") / "tokenizer.json").read_bytes())
    smaller, kept = without_other_scripts(whole)
    before, after = (WindowTokens(Tokenizer.from_str(json.dumps(one))) for one in (whole, smaller))
    return Tokenizers(whole, smaller, kept, before, after)


# The tokenizer reads lower case without accents; some letters become others outside the block.
LATIN = "".join(c for c in map(chr, range(0x250)) if normalize("NFD", c.lower())[0] < "\u0250")


@examples(300)
@given(text=st.text(LATIN))
def test_latin_text_becomes_the_same_tokens(of: Tokenizers, text: str) -> None:
    for old, new in zip(of.before.encode(text), of.after.encode(text), strict=True):
        assert [of.kept[number] for number in new.ids] == old.ids
        assert (new.types, new.offsets) == (old.types, old.offsets)


def test_tokens_of_other_scripts_and_of_no_text_are_left_out(of: Tokenizers) -> None:
    left = of.smaller["model"]["vocab"]
    assert len(of.kept) == len(left) < len(of.whole["model"]["vocab"]) - 2000
    assert not left.keys() & {"[unused7]", "д", "中"}


def test_the_smaller_network_gives_the_same_outputs(of: Tokenizers) -> None:
    nets = untrained_nets({"base": "minilm"}).eval()
    smaller = with_tokens(nets, of.kept).eval()
    one, other = (t.encode("Old people are slow.")[0] for t in (of.before, of.after))
    with torch.no_grad():
        found = [
            network.net(torch.tensor([e.ids]), torch.ones(1, len(e.ids), dtype=torch.long),
                        torch.tensor([e.types]))
            for network, e in ((nets, one), (smaller, other))
        ]  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

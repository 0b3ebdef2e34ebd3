"""Weights that average their network's logits with those of a shipped one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from guard.detect.encoder import Encoder
from guard.detect.network import AveragedNetwork, Network, Pass, token_numbers
from guard.detect.tokens import Encoded
from guard.detect.weights import (
    CONFIG,
    ONNX,
    SHIPPED,
    TABLE,
    TOKENIZER,
    detector_of,
    open_weights,
    shipped_weights,
    write_manifest,
)
from guard.errors import WeightsError
from tests.small import WEIGHTS

SAID = "She said that old people are useless at work."


def averaging(folder: Path, mean_with: Any) -> Path:
    """Copy the small weights and let them name a network to average with."""
    shutil.copytree(WEIGHTS, folder)
    config = json.loads((folder / CONFIG).read_bytes())
    (folder / CONFIG).write_text(json.dumps(config | {"mean_with": mean_with}), "utf-8")
    write_manifest(folder)
    return folder


def test_a_damaged_table_of_tokens_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(SHIPPED, folder)
    (folder / TABLE).write_bytes((folder / TABLE).read_bytes()[:-1])
    with pytest.raises(WeightsError, match=f"{folder / TABLE} is not the recorded one"):
        Encoder(folder, use_references=False)
    (folder / TABLE).unlink()
    with pytest.raises(WeightsError, match=f"{folder / TABLE} is missing"):
        Encoder(folder, use_references=False)


class Fixed:
    """A network that gives numbers of its own, and remembers the token ids that it got."""

    def __init__(self, number: float, implied: float) -> None:
        self.number, self.implied = number, implied
        self.ids: list[int] = []

    def run(self, encoded: Encoded) -> Pass:
        self.ids = encoded.ids
        n, t = np.float32(self.number), len(encoded.ids)
        return Pass(
            np.full(4, n), np.full(8, n), self.number, np.full(9, n), np.full((t, 2), n),
            self.implied,
        )  # fmt: skip


@given(
    st.floats(-9, 9, width=32),
    st.floats(-9, 9, width=32),
    st.lists(st.integers(0, 4), min_size=2, max_size=8),
    st.permutations(range(5)),
)
def test_a_mean_is_of_logits_and_its_vectors_are_the_firsts(
    one: float, other: float, ids: list[int], numbers: list[int]
) -> None:
    first, second = Fixed(one, one), Fixed(other, other)
    encoded = Encoded(ids, [0] * len(ids), [(0, 1)] * (len(ids) - 2), [0] * (len(ids) - 2))
    found = AveragedNetwork(first, second, numbers).run(encoded)  # type: ignore[arg-type]
    middle = np.float32((one + other) / 2)
    assert found.logit == pytest.approx(middle)
    assert found.types == pytest.approx(np.full(9, middle))
    assert found.spans == pytest.approx(np.full((len(ids), 2), middle))
    assert found.implied == pytest.approx(middle)
    assert (found.embedding == np.float32(one)).all()
    assert (found.state == np.float32(one)).all()
    assert first.ids == ids
    assert second.ids == [numbers[i] for i in ids]


def test_weights_averaged_with_their_own_network_judge_as_before(tmp_path: Path) -> None:
    plain = Encoder(WEIGHTS, use_references=False)
    both = Encoder(averaging(tmp_path / "both", open_weights(WEIGHTS).name), use_references=False)
    for text in (SAID, "The library opens at nine.", "Ça va, naïve café? \N{GRINNING FACE}"):
        one, two = (e.run(e.tokens.encode(text)[0]) for e in (plain, both))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(np.float32(a), np.float32(b), atol=1e-6)


def test_the_default_reads_both_shipped_networks() -> None:
    encoder = Encoder(use_references=False)
    config = json.loads((SHIPPED / CONFIG).read_bytes())
    other = shipped_weights(detector_of(config["mean_with"]))
    networks = [Network(SHIPPED / ONNX), Network(other / ONNX)]
    small = Encoder(other, use_references=False)
    encoded, same = (e.tokens.encode(SAID, ["Shall I hire him?"])[0] for e in (encoder, small))
    # Both cut the text alike, though they number tokens differently.
    assert (encoded.types, encoded.offsets) == (same.types, same.offsets)
    logits = [n.run(e).logit for n, e in zip(networks, (encoded, same), strict=True)]
    assert encoder.run(encoded).logit == pytest.approx(np.mean(logits), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("encoder-small-1.0+00000000", "calibrated together with encoder-small-1.0+00000000, but "),
        ("encoder-small", "cannot be used with mean_with = 'encoder-small'"),
        ("encoder-huge-1.0+00000000", "cannot be used with mean_with ="),
        ("encoder-small-1\n.0+00000000", "cannot be used with mean_with ="),
        ("../encoder-small-1.0+00000000", "cannot be used with mean_with ="),
        ({"encoder-small": 1}, "cannot be used with mean_with ="),
        (7, "cannot be used with mean_with ="),
    ],
)
def test_unknown_weights_are_refused_in_one_sentence(name: Any, said: str, tmp_path: Path) -> None:
    folder = averaging(tmp_path / "other", name)
    with pytest.raises(WeightsError) as caught:
        Encoder(folder, use_references=False)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_name_says_which_networks_judge(tmp_path: Path) -> None:
    small = open_weights(WEIGHTS).name
    assert open_weights(averaging(tmp_path / "both", small)).name == f"{small}+{small[-8:]}"


def test_a_damaged_second_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = averaging(tmp_path / "both", open_weights(WEIGHTS).name)
    damaged = tmp_path / "encoder-small"
    shutil.copytree(WEIGHTS, damaged)
    (damaged / ONNX).write_bytes(b"no network")
    monkeypatch.setattr("guard.detect.weights._MODELS", tmp_path)
    for use in (lambda: Encoder(folder, use_references=False), lambda: open_weights(folder)):
        with pytest.raises(WeightsError, match=f"{damaged / ONNX} is not the recorded one"):
            use()
    (damaged / ONNX).unlink()
    for use in (lambda: Encoder(folder, use_references=False), lambda: open_weights(folder)):
        with pytest.raises(WeightsError, match=f"{damaged / ONNX} is missing"):
            use()


def test_tokens_are_found_by_what_they_say() -> None:
    first = {"<s>": 0, "<pad>": 1, "</s>": 2, "old": 3, "##er": 4, "<unk>": 5}
    second = {"[PAD]": 0, "##er": 7, "[CLS]": 8, "[SEP]": 9, "old": 2, "[UNK]": 1, "more": 3}
    assert token_numbers(first, second) == [8, 0, 9, 2, 7, 1]
    with pytest.raises(ValueError, match="no token 'young'"):
        token_numbers(first | {"young": 6}, second)
    with pytest.raises(ValueError, match="have a gap"):
        token_numbers(first | {"old": 7}, second)


def test_both_vocabularies_have_the_same_tokens() -> None:
    vocabularies = [
        Tokenizer.from_file(str(folder / TOKENIZER)).get_vocab() for folder in (SHIPPED, WEIGHTS)
    ]
    assert set(token_numbers(*vocabularies)) == set(vocabularies[1].values())

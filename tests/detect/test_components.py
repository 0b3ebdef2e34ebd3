"""Tokens, spans, script, fusion and the hash check, each by itself."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.detect.attributions import MOST_ATTRIBUTES, MOST_GROUPS, find_attributions
from guard.detect.fusion import FusionHead
from guard.detect.script import mostly_latin
from guard.detect.tokens import MAX_TOKENS, Encoded, WindowTokens
from guard.detect.weights import CONFIG, FILES, LEXICAL, TOKENIZER, open_weights, write_manifest
from guard.errors import WeightsError
from guard.verdict import Attribution
from tests.small import WEIGHTS


@pytest.fixture(scope="module")
def tokens() -> WindowTokens:
    return WindowTokens(WEIGHTS / TOKENIZER, 16)


def segment_tokens(encoded: Encoded) -> int:
    return encoded.types.count(0) - 2


def test_context_is_the_second_part_and_its_latest_tokens_stay(tokens: WindowTokens) -> None:
    (alone,) = tokens.encode("Two words")
    assert alone.types == [0] * 4
    (pair,) = tokens.encode("Two words", ["first " * 40, "last one"])
    assert pair.ids[:4] == alone.ids
    assert len(pair.ids) == 4 + 16 + 1
    (short,) = tokens.encode("Two words", ["last one"])
    assert pair.ids[-3:] == short.ids[-3:]


def test_no_token_of_a_segment_is_dropped(tokens: WindowTokens) -> None:
    text = " ".join(f"w{i}" for i in range(700))
    whole = len(WindowTokens(WEIGHTS / TOKENIZER)._tokenizer.encode(text).ids)
    assert whole > MAX_TOKENS
    parts = tokens.encode(text, ["context"])
    covered = {offset for part in parts for offset in part.offsets}
    wanted = tokens._tokenizer.encode(text, add_special_tokens=False).offsets
    assert covered == set(wanted)
    assert all(len(p.ids) <= MAX_TOKENS for p in parts)
    # A segment that just fits leaves the context no room, and keeps its own tokens.
    fits = "a " * (MAX_TOKENS - 2)
    (one,) = tokens.encode(fits, ["context"])
    assert segment_tokens(one) == MAX_TOKENS - 2


def scored(
    tokens: WindowTokens, text: str, groups: list[str], said: list[str]
) -> tuple[Attribution, ...]:
    (encoded,) = tokens.encode(text)
    scores = np.full((len(encoded.ids), 2), -4.0, np.float32)
    for channel, phrases in enumerate((groups, said)):
        for phrase in phrases:
            start = text.index(phrase)
            for i, (a, b) in enumerate(encoded.offsets):
                if a < start + len(phrase) and b > start:
                    scores[i + 1, channel] = 3.0
    return find_attributions(text, encoded, scores)


@pytest.mark.parametrize(
    ("text", "group", "attribute"),
    [
        ("  Old people are useless at work.", "Old people", "useless at work"),
        ("Non-white men can't drive!", "Non-white men", "can't drive"),
        ("The Çınar people—all thieves—came.", "Çınar people", "thieves"),
        ("😀 Velmorians steal 😀", "Velmorians", "steal"),
        ("The students' union are fools", "students", "fools"),
    ],
)
def test_spans_are_the_words_of_the_text(
    tokens: WindowTokens, text: str, group: str, attribute: str
) -> None:
    (found,) = scored(tokens, text, [group], [attribute])
    assert (found.group, found.attribute) == (group, attribute)
    assert text[slice(*found.group_span)] == group
    assert text[slice(*found.attribute_span)] == attribute


def test_without_a_decent_span_there_is_no_attribution(tokens: WindowTokens) -> None:
    (encoded,) = tokens.encode("The library opens at nine.")
    low = np.full((len(encoded.ids), 2), -3.0, np.float32)
    assert find_attributions("The library opens at nine.", encoded, low) == ()


def test_each_attribute_goes_to_the_nearest_group(tokens: WindowTokens) -> None:
    text = "Danes are rude and Finns are gloomy, says he"
    found = scored(tokens, text, ["Danes", "Finns"], ["rude", "gloomy"])
    assert {(a.group, a.attribute) for a in found} == {("Danes", "rude"), ("Finns", "gloomy")}


def test_every_group_of_one_attribute_is_named(tokens: WindowTokens) -> None:
    found = scored(tokens, "Danes, like most Finns, are rude", ["Danes", "Finns"], ["rude"])
    assert {(a.group, a.attribute) for a in found} == {("Danes", "rude"), ("Finns", "rude")}


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_groups_and_attributes_never_overlap(tokens: WindowTokens, seed: int) -> None:
    text = "Some say the old men of Çınar can't cook; others that they won't."
    (encoded,) = tokens.encode(text)
    scores = np.random.default_rng(seed).normal(0, 2, (len(encoded.ids), 2)).astype(np.float32)
    found = find_attributions(text, encoded, scores)
    groups, said = {a.group_span for a in found}, {a.attribute_span for a in found}
    assert len(groups) <= MOST_GROUPS
    assert len(said) <= MOST_ATTRIBUTES
    spans = sorted(groups | said)
    assert len(spans) == len(groups) + len(said)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    for a in found:
        assert text[slice(*a.group_span)] == a.group
        assert text[slice(*a.attribute_span)] == a.attribute


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        ("Plain words", True),
        ("Größe, naïve, Đorđe", True),
        ("12:30 — 😀", True),
        ("Все они такие", False),
        ("他们都一样", False),
        ("कुछ लोग", False),
        ("He said привет to us", True),
    ],
)
def test_script(text: str, latin: bool) -> None:
    assert mostly_latin(text) is latin


def test_no_reference_changes_nothing() -> None:
    head = FusionHead({}, 9)
    empty = np.zeros((0, 4), np.float32)
    change, types = head.change(empty.sum(0), empty.sum(0), 1.0, empty, np.zeros(0, np.int64))
    assert change == 0.0
    assert not types.any()


def test_numpy_fusion_is_the_trained_one() -> None:
    torch = pytest.importorskip("torch")
    from guard.train.model import STATE, Fusion, Outputs

    torch.manual_seed(3)
    fusion = Fusion(dim=8)
    q = torch.nn.functional.normalize(torch.randn(1, 8), dim=1)
    vectors = torch.nn.functional.normalize(torch.randn(1, 3, 8), dim=2)
    kinds = torch.tensor([[1, 8, 3]])
    out = Outputs(q, torch.randn(1, STATE), torch.randn(1), torch.randn(1, 9), torch.zeros(1, 2, 2),
                  torch.zeros(1))  # fmt: skip
    mask = torch.tensor([[True, True, False]])
    with torch.no_grad():
        change, types = fusion(out, vectors, kinds, mask)
    head = FusionHead({k: v.numpy() for k, v in fusion.state_dict().items()}, 9)
    got, got_types = head.change(
        q[0].numpy(), out.state[0].numpy(), float(out.logit), vectors[0, :2].numpy(),
        kinds[0, :2].numpy(),
    )  # fmt: skip
    assert got == pytest.approx(float(change), abs=1e-5)
    np.testing.assert_allclose(got_types, types[0].numpy(), atol=1e-5)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in (*FILES, LEXICAL, "manifest.json"):
        shutil.copyfile(WEIGHTS / name, folder / name)
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused(copy: Path, name: str) -> None:
    with (copy / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(WeightsError, match=rf"{name} is not the recorded one.*reinstall"):
        open_weights(copy)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(WeightsError, match=rf"{name} is missing.*reinstall"):
        open_weights(copy)


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"There are no weights at .*reinstall"):
        open_weights(tmp_path / "nowhere")


def test_a_damaged_manifest_is_refused(copy: Path) -> None:
    (copy / "manifest.json").write_text("{", "utf-8")
    with pytest.raises(WeightsError, match="cannot be read"):
        open_weights(copy)


def test_a_lacking_setting_is_named(copy: Path) -> None:
    content = json.loads((copy / CONFIG).read_text("utf-8"))
    del content["temperature"]
    (copy / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(copy)
    with pytest.raises(WeightsError, match="temperature"):
        open_weights(copy)


def test_thresholds_keep_the_name_and_with_it_the_index(copy: Path) -> None:
    before = open_weights(copy).name
    content = json.loads((copy / CONFIG).read_text("utf-8"))
    content["operating_points"]["quiet"]["age"] = 0.97
    (copy / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(copy)
    assert open_weights(copy).name == before

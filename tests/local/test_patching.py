"""States of one prompt are put into another, and only there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from guard.errors import UsageError
from guard.local.generation import Generation
from guard.local.model import LoadedModel, load_model
from guard.local.options import GenerationOptions
from guard.local.patching import Patched, patched_prompt, patching_calls

WORDS = "Emily and John at the school"
SOURCE = ({"role": "user", "content": f"A story of {WORDS}, please."},)
TARGET = ({"role": "user", "content": "A story about {X}"},)


@pytest.fixture(scope="module")
def model(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The tiny Llama with five blocks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("deep") / "model"
    shutil.copytree(folder, path)
    torch.manual_seed(2)
    config = LlamaConfig.from_pretrained(path, num_hidden_layers=5)
    LlamaForCausalLM(config).save_pretrained(path)
    return load_model(str(path))


def made(model: LoadedModel, words: str = WORDS, layers: tuple[int, int] = (2, 3)) -> Patched:
    return patched_prompt(model, SOURCE, words, TARGET, "Sure:", layers)


def behind(model: LoadedModel, layer: int, tokens: list[int]) -> Any:
    """The states (n, hidden) behind a block, as it gives them."""
    import torch

    kept: list[Any] = []
    handle = model.network.model.layers[layer].register_forward_hook(
        lambda block, given, found: kept.append(found[0] if isinstance(found, tuple) else found)
    )
    with torch.inference_mode():
        model.network(input_ids=torch.tensor([tokens]))
    handle.remove()
    return kept[0].reshape(-1, kept[0].shape[-1])


def test_as_many_x_stand_there_as_the_words_have_tokens(model: LoadedModel) -> None:
    patch = made(model)
    text = model.tokenizer.decode(patch.tokens)
    assert text.count("X") == len(patch.places) == len(patch.states) == len(WORDS)  # of bytes
    assert {model.tokenizer.decode([patch.tokens[n]]) for n in patch.places} == {"X"}
    assert text.endswith("Sure:")


def test_the_patched_positions_carry_the_states_of_the_source_and_no_others(
    model: LoadedModel,
) -> None:
    import torch

    patch = made(model)
    source, words = model.prompt(list(SOURCE)), model.tokenizer(WORDS)["input_ids"]
    (begin,) = (n for n in range(len(source)) if source[n : n + len(words)] == words)
    want = behind(model, 2, source)[begin : begin + len(words)]
    before = behind(model, 3, patch.tokens)
    with patching_calls(model, patch):
        after = behind(model, 3, patch.tokens)
        other = behind(model, 3, patch.tokens[:-1])
    assert torch.equal(after[patch.places], want)
    rest = [n for n in range(len(patch.tokens)) if n not in patch.places]
    assert torch.equal(after[rest], before[rest])
    # A prompt of other length is another call's.
    assert torch.allclose(other, before[:-1], atol=1e-5)
    assert torch.equal(behind(model, 3, patch.tokens), before)


def test_the_answer_depends_on_the_words(model: LoadedModel) -> None:
    def said(words: str) -> str:
        patch = made(model, words)
        with patching_calls(model, patch):
            return "".join(Generation(model, patch.tokens, GenerationOptions(max_tokens=8)))

    patch = made(model)
    plain = "".join(Generation(model, patch.tokens, GenerationOptions(max_tokens=8)))
    assert len({said(WORDS), said("story of Emily and John at t"), plain}) == 3
    assert said(WORDS) == said(WORDS)


def test_a_template_that_refuses_the_messages_is_told(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "chat_template", "{{ raise_exception('no such role') }}")
    with pytest.raises(UsageError, match="refuses these messages: no such role"):
        made(model)


def test_a_model_without_such_a_layer_is_told(model: LoadedModel) -> None:
    with pytest.raises(UsageError, match=r"layers 3 and 4, counted from 0.* has 5 in all"):
        made(model, layers=(3, 4))

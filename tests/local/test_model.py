from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guard.errors import UsageError, WeightsError
from guard.local import model
from guard.local.generation import Generation
from guard.local.options import GenerationOptions
from tests.local.conftest import TEMPLATE


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global torch
    import torch


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers as llama.cpp writes it: byte tokens, template inside."""
    import numpy as np
    from gguf import GGUFWriter
    from tokenizers.pre_tokenizers import ByteLevel

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tokens = ["<s>", "</s>", *sorted(ByteLevel.alphabet()), "hi", "er"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")  # older transformers read it
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["h i", "e r"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), 16), "output": (len(tokens), 16), "output_norm": (16,)}
    for layer in range(2):
        own = {f"attn_{x}": (16, 16) for x in ("q", "k", "v", "output")}
        own |= {"ffn_gate": (32, 16), "ffn_up": (32, 16), "ffn_down": (16, 32)}
        own |= {"attn_norm": (16,), "ffn_norm": (16,)}
        shapes |= {f"blk.{layer}.{key}": shape for key, shape in own.items()}
    for key, shape in shapes.items():
        writer.add_tensor(f"{key}.weight", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_model_is_loaded_once_however_many_ask(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    found: list[Any] = []
    asking = [
        threading.Thread(target=lambda: found.append(model.load_model(str(folder))))
        for _ in range(4)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(found) == 4
    assert len({id(x) for x in found}) == 1
    assert model.load_model(str(folder / "." / "")) is found[0]


def test_what_it_knows_of_a_model(folder: Path) -> None:
    loaded = model.load_model(str(folder))
    assert loaded.ends == {1}
    assert loaded.context == 1024
    assert not any(p.requires_grad for p in loaded.network.parameters())


def test_a_missing_extra_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(UsageError, match=r"need accelerate.*pip install .*\[local\]'"):
        model.load_model(str(folder))


@pytest.mark.parametrize(
    ("loaded", "chosen", "expected"),
    [(False, None, "PASSIVE"), (False, "ACTIVE", "ACTIVE"), (True, None, None)],
)
def test_torch_is_told_not_to_spin_unless_someone_chose(
    loaded: bool, chosen: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(
        importlib, "import_module", lambda name: seen.append(os.environ.get("OMP_WAIT_POLICY"))
    )
    modules = {"torch": torch} if loaded else {}
    monkeypatch.setattr(model, "sys", SimpleNamespace(modules=modules))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    model._import_packages()
    assert set(seen) == {expected}
    assert os.environ.get("OMP_WAIT_POLICY") == chosen


def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not GGUF at all")
    with pytest.raises(WeightsError, match=r"x\.gguf cannot be loaded"):
        model.load_model(str(tmp_path / "x.gguf"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        model.load_model(str(tmp_path))


def test_loading_draws_nothing_and_leaves_the_libraries_as_they_were(
    folder: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    import gguf
    from transformers.utils import logging

    monkeypatch.setattr(model, "_loaded", {})
    before = (gguf.GGUFReader, gguf.get_tensor_name_map, logging.is_progress_bar_enabled())
    model.load_model(str(folder))
    model.load_model(str(gguf_file))
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before[:2]
    assert logging.is_progress_bar_enabled() is before[2]
    assert capfd.readouterr().err == ""


def test_a_gguf_file_alone_holds_weights_tokenizer_and_template(gguf_file: Path) -> None:
    loaded = model.load_model(str(gguf_file))
    assert 1 in loaded.ends
    assert loaded.context == 64
    tokens = loaded.prompt([{"role": "user", "content": "hi"}])
    assert loaded.tokenizer.decode(tokens) == "<s>user:hi</s><s>"
    assert len(list(Generation(loaded, tokens, GenerationOptions(max_tokens=5)))) > 0


def test_a_gguf_file_is_parsed_once(gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    class Counted(gguf.GGUFReader):  # type: ignore[misc]
        count = 0

        def __init__(self, *args: Any) -> None:
            Counted.count += 1
            super().__init__(*args)

    monkeypatch.setattr(gguf, "GGUFReader", Counted)
    monkeypatch.setattr(model, "_loaded", {})
    model.load_model(str(gguf_file))
    assert Counted.count <= 1

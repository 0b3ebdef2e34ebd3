"""A tiny random Llama that speaks bytes, in a folder as ``transformers`` writes it."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('system comes first') }}{% endif %}"
    "<s>{{ m['role'] }}:{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>{% endif %}"
)
PREFIX = "guard-local/"


def pytest_configure(config: pytest.Config) -> None:
    # LiteLLM's own types make pydantic say so when they are first used.
    config.addinivalue_line(
        "filterwarnings", "ignore:Items? .* on TypedDict class .* `ReadOnly`:UserWarning"
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: i for i, text in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    path = tmp_path_factory.mktemp("tiny")
    made.save_pretrained(path)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def name(folder: Path) -> str:
    """The model as LiteLLM is asked for it."""
    return PREFIX + str(folder)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    import litellm

    from guard.local import provider

    assert f"{provider.PROVIDER}/" == PREFIX
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    provider.register_provider()


class Steps:
    """Counts the forward passes of the tiny model, and says in which threads they ran."""

    def __init__(self) -> None:
        self.count = 0
        self.threads: set[str] = set()
        self.took_s = 0.0
        self.begun = threading.Event()

    def __call__(self, *args: Any) -> None:
        self.count += 1
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        time.sleep(self.took_s)


@pytest.fixture
def steps(folder: Path) -> Iterator[Steps]:
    from guard.local import provider

    seen = Steps()
    handle = provider.load_model(str(folder)).network.register_forward_pre_hook(seen)
    yield seen
    handle.remove()

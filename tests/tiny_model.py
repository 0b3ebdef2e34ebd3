"""Random causal models of two layers, with a tokenizer made on the spot, in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guard.detect.answer import TemplateAnswer, rendered_answer
from guard.detect.instruction import Instruction
from guard.verdict import BIAS_TYPES

#: As Qwen and SmolLM2 write a conversation.
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: As Llama-2-chat does: the system message stands inside the first user message.
LLAMA2 = (
    "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token }}[INST] "
    "{% if system and loop.index0 == 1 %}<<SYS>>\n{{ system }}\n<</SYS>>\n\n{% endif %}"
    "{{ m['content'] }} [/INST]{% elif m['role'] == 'assistant' %} {{ m['content'] }} "
    "{{ eos_token }}{% endif %}{% endfor %}"
)
TEXTS = (
    Instruction().fixed(),
    *(
        rendered_answer(TemplateAnswer(True, kind, (("group", "attribute"),)))
        for kind in BIAS_TYPES
    ),
)


def save_model(
    folder: Path,
    *,
    template: str | None = CHATML,
    words: int = 700,
    pieces: bool = False,
    seed: int = 1,
    **config: Any,
) -> Path:
    """Save a random Llama to ``folder``; ``config`` are arguments of its configuration.

    Its tokenizer has ``words`` tokens, learnt from the instruction: over bytes, as GPT-2's and
    Qwen's are, or with ``pieces`` with ``▁`` before each word, as Llama-2's.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=_pieces(words) if pieces else _bytes(words),
        bos_token="<s>",
        eos_token="</s>" if pieces else "<|im_end|>",
        chat_template=template,
    )
    made.save_pretrained(folder)
    torch.manual_seed(seed)
    given = {
        "vocab_size": len(made),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": made.bos_token_id,
        "eos_token_id": made.eos_token_id,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
    }
    LlamaForCausalLM(LlamaConfig(**(given | config))).save_pretrained(folder)
    return folder


def _bytes(words: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(
        tokenizer,
        trainers.BpeTrainer(
            vocab_size=words,
            special_tokens=["<s>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
        TEXTS,
    )


def _pieces(words: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    octets = [f"<0x{number:02X}>" for number in range(256)]
    # Without a pre-tokenizer merges would reach over words: they are learnt word by word.
    by_word = [word for text in TEXTS for word in text.split()]
    return _trained(
        tokenizer,
        trainers.BpeTrainer(
            vocab_size=words,
            special_tokens=["<unk>", "<s>", "</s>", *octets],
            show_progress=False,
        ),
        by_word,
    )


def _trained(tokenizer: Any, trainer: Any, texts: Sequence[str]) -> Any:
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guard.local.generation import Generation, pick_token
from guard.local.model import load_model
from guard.local.options import GenerationOptions


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global torch
    import torch


PROMPT = [5, 6, 7, 8]


def greedy(folder: Path, count: int) -> list[int]:
    """The tokens by the plain definition: the whole sequence read anew for each."""
    network, said = load_model(str(folder)).network, list(PROMPT)
    with torch.inference_mode():
        for _ in range(count):
            said.append(int(network(input_ids=torch.tensor([said])).logits[0, -1].argmax()))
    return said[len(PROMPT) :]


def test_the_likeliest_tokens_are_said(folder: Path) -> None:
    model = load_model(str(folder))
    generation = Generation(model, PROMPT, GenerationOptions(max_tokens=30))
    assert "".join(generation) == model.tokenizer.decode(
        greedy(folder, 30), skip_special_tokens=True
    )
    assert (generation.finish, generation.completion_tokens) == ("length", 30)


def test_it_is_what_generate_says(folder: Path) -> None:
    found = load_model(str(folder)).network.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        max_new_tokens=20,
        do_sample=False,
        pad_token_id=1,
        eos_token_id=None,
    )
    assert found[0, len(PROMPT) :].tolist() == greedy(folder, 20)


def test_an_end_token_ends_the_answer_and_counts(folder: Path) -> None:
    tokens = greedy(folder, 20)
    at = next(i for i, token in enumerate(tokens) if i >= 3 and token not in tokens[:i])
    model = replace(load_model(str(folder)), ends=frozenset({tokens[at]}))
    generation = Generation(model, PROMPT, GenerationOptions(max_tokens=20))
    said = "".join(generation)
    assert said == model.tokenizer.decode(tokens[:at], skip_special_tokens=True)
    assert (generation.finish, generation.completion_tokens) == ("stop", at + 1)


def test_a_closed_answer_has_no_finish(folder: Path) -> None:
    generation = Generation(load_model(str(folder)), PROMPT, GenerationOptions(max_tokens=20))
    next(generation)
    generation.close()
    assert list(generation) == []
    assert generation.finish is None


@pytest.fixture
def logits() -> Any:
    return torch.tensor([0.0, 3.0, 2.0, 1.0])  # shares 0.03, 0.64, 0.24, 0.09


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        (GenerationOptions(), {1}),
        (GenerationOptions(temperature=1.0), {0, 1, 2, 3}),
        (GenerationOptions(temperature=1.0, top_k=2), {1, 2}),
        (GenerationOptions(temperature=1.0, top_k=99), {0, 1, 2, 3}),
        (GenerationOptions(temperature=1.0, top_p=0.6), {1}),
        (GenerationOptions(temperature=1.0, top_p=0.7), {1, 2}),
        (GenerationOptions(temperature=0.01), {1}),
    ],
)
def test_tokens_are_drawn_from_the_likeliest(
    logits: Any, options: GenerationOptions, possible: set[int]
) -> None:
    random = torch.Generator().manual_seed(0)
    assert {int(pick_token(logits, options, random)) for _ in range(400)} == possible


def test_tokens_are_drawn_by_their_shares(logits: Any) -> None:
    random = torch.Generator().manual_seed(0)
    drawn = [
        int(pick_token(logits, GenerationOptions(temperature=1.0), random)) for _ in range(4000)
    ]
    assert drawn.count(1) / 4000 == pytest.approx(float(logits.softmax(-1)[1]), abs=0.03)


def test_what_was_said_is_said_less_often_under_a_penalty(folder: Path) -> None:
    model = load_model(str(folder))

    def said(**options: float) -> list[int]:
        tokens: list[int] = []
        generation = Generation(model, PROMPT, GenerationOptions(max_tokens=20, **options))
        step = generation._tokens.next
        generation._tokens.next = lambda: tokens.append(step()) or tokens[-1]  # type: ignore
        list(generation)
        return tokens

    plain, penalised = said(), said(frequency_penalty=2.0, presence_penalty=2.0)
    network, expected = model.network, []
    with torch.inference_mode():
        for _ in penalised:
            logits = network(input_ids=torch.tensor([PROMPT + expected])).logits[0, -1].clone()
            for token in set(expected):
                logits[token] -= 2.0 * expected.count(token) + 2.0
            expected.append(int(logits.argmax()))
    assert penalised == expected != plain

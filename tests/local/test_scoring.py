from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from guard.errors import UsageError
from guard.local.model import LoadedModel, load_model
from guard.local.scoring import Scored, first_tokens, score_continuations


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global torch
    import torch


CONTEXT = "The cook, who is old, made a soup. Was it good?"
ENDS = [" Yes.", " No, it was salty and thin.", " Yes, very.", "", " Nobody knows, I am afraid."]


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load_model(str(folder))


def plainly(model: LoadedModel, context: str, continuation: str, front: list[int]) -> Scored:
    """By the definition: each token behind all before it, read anew."""
    n = len(model.tokenizer(context, add_special_tokens=False)["input_ids"])
    ids = front + model.tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
    total, begin = 0.0, len(front) + n
    with torch.inference_mode():
        for at in range(begin, len(ids)):
            logits = model.network(input_ids=torch.tensor([ids[:at]])).logits[0, -1]
            total += float(logits.double().log_softmax(-1)[ids[at]])
    return Scored(total, len(ids) - begin)


def test_a_batch_says_what_each_text_says_alone(model: LoadedModel) -> None:
    found = score_continuations(model, CONTEXT, ENDS)
    for text, (logprob, tokens) in zip(ENDS, found, strict=True):
        expected = plainly(model, CONTEXT, text, [])
        assert tokens == expected.tokens == len(text.encode())
        assert logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert score_continuations(model, CONTEXT, [text])[0].logprob == pytest.approx(
            logprob, abs=1e-3
        )


def test_a_turn_is_scored_behind_its_conversation(model: LoadedModel) -> None:
    """The template's tokens come first, and count no more than a context does."""
    prompt = model.prompt(
        [{"role": "system", "content": "Go on."}, {"role": "user", "content": CONTEXT}]
    )
    found = score_continuations(model, "not read", ENDS, prompt)
    for text, (logprob, tokens) in zip(ENDS, found, strict=True):
        expected = plainly(model, "", text, prompt)
        assert tokens == expected.tokens == len(text.encode())
        assert logprob == pytest.approx(expected.logprob, abs=1e-3)
    assert found[0].logprob != pytest.approx(
        score_continuations(model, CONTEXT, ENDS[:1])[0].logprob, abs=1e-2
    )


def test_more_than_a_batch_keeps_its_order(model: LoadedModel) -> None:
    texts = [f" Number {n}." for n in range(40)]
    found = score_continuations(model, CONTEXT, texts)
    assert found[37].logprob == pytest.approx(
        score_continuations(model, CONTEXT, [texts[37]])[0].logprob, abs=1e-3
    )
    assert len(found) == 40


def test_the_context_is_read_once(model: LoadedModel) -> None:
    widths: list[tuple[int, ...]] = []
    hook = model.network.register_forward_pre_hook(
        lambda _, __, given: widths.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    try:
        score_continuations(model, CONTEXT, ENDS)
    finally:
        hook.remove()
    assert widths[0] == (1, len(CONTEXT) - 1)
    assert widths[1][0] == len(ENDS)
    assert widths[1][1] <= 1 + max(map(len, ENDS))


def test_without_a_context_an_end_of_text_comes_before_and_does_not_count(
    model: LoadedModel,
) -> None:
    front = [min(model.ends)]
    (found,) = score_continuations(model, "", ["Hello"])
    expected = plainly(model, "", "Hello", front)
    assert found.tokens == expected.tokens == 5
    assert found.logprob == pytest.approx(expected.logprob, abs=1e-3)


def test_what_is_too_long_is_refused(model: LoadedModel) -> None:
    with pytest.raises(UsageError, match="has 60 tokens; the model can read 50"):
        score_continuations(replace(model, context=50), "a" * 40, ["b" * 20])


def test_first_tokens_are_the_likeliest(model: LoadedModel) -> None:
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1]
    shares = logits.log_softmax(-1)
    found = first_tokens(model, [5, 6, 7], 4)
    assert 1 <= len(found) <= 4
    assert max(found.values()) == pytest.approx(float(shares.max()), abs=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)

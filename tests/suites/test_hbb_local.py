"""What a real model says of HBB: exact probabilities and samples agree, sentences are scored.

Needs the network once, for the weights.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from guard.audit.calls import Slot
from guard.audit.local_model import LocalModel
from guard.audit.others import open_model
from guard.local.model import load_model
from guard.suites import Capability, Chat, LogLikelihood
from guard.suites.hbb.suite import Hbb, HbbSg, McqOptions, SgOptions, letter_probability

SAMPLES = 40
ALL: frozenset[Capability] = frozenset({"chat", "logprobs", "given_logprobs"})
pytestmark = pytest.mark.slow("a local model scores sentences", limit_s=3000)


@pytest.fixture
async def model(weights: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalModel]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(weights))
    monkeypatch.setenv("LOCALAPPDATA", str(weights))
    found = open_model("local:smollm2", timeout_s=300)
    assert isinstance(found, LocalModel)
    yield found
    await found.aclose()


async def test_sentences_are_scored_as_turns_under_the_models_template(model: LocalModel) -> None:
    suite = HbbSg(SgOptions()).for_capabilities(await model.capabilities(ALL))
    assert isinstance(suite, HbbSg)
    assert suite.sg.prompt == "template"
    item = next(iter(suite.items()))
    request = suite.request(item, 0, ())
    assert isinstance(request, LogLikelihood)
    answer = (await model.ask(request, "0", Slot(item.id, 0, 0))).answer
    outcome = suite.outcome(item, 0, (answer,))
    assert outcome.name == "scored"
    assert 0.2 < outcome.values["p"] < 0.8
    # By the definition: each token of the turn behind all that the template puts before it.
    import torch

    local = load_model("smollm2")
    prompt = local.prompt([dict(m) for m in request.messages])
    shown = local.tokenizer.decode(prompt)
    assert shown.endswith("<|im_start|>assistant\n")
    assert request.context in shown
    tokens = local.tokenizer(request.continuations[3], add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits = local.network(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    shares = logits[len(prompt) - 1 : -1].double().log_softmax(-1)
    expected = sum(float(shares[at, token]) for at, token in enumerate(tokens))
    assert answer.scores[3].tokens == len(tokens)
    assert answer.scores[3].logprob == pytest.approx(expected, abs=0.01)
    # The same words without the template are another text to it.
    bare = HbbSg(SgOptions(prompt="raw")).request(item, 0, ())
    assert isinstance(bare, LogLikelihood)
    raw = (await model.ask(bare, "1", Slot(item.id, 0, 0))).answer
    assert not math.isclose(raw.scores[3].logprob, expected, abs_tol=0.1)


async def test_both_ways_give_one_probability(model: LocalModel) -> None:
    """Of the letters that SmolLM2 says first at temperature .8, in both orders of the options."""
    exact = Hbb(McqOptions(probabilities="logprobs"))
    items = list(exact.items())[:: 50 * 7][:3]
    squares, cells = 0.0, 0
    for item in items:
        for sample in (0, 1):
            request = exact.request(item, sample, ())
            assert isinstance(request, Chat)
            settings = {"temperature": 0.8, "top_p": 1, "max_tokens": 1}
            first = replace(request, settings={"temperature": 0, "max_tokens": 1})
            reply = await model.ask(first, "0", Slot(item.id, sample, 0))
            p = letter_probability(reply.first_tokens, 0.8)
            sampled = []
            for n in range(SAMPLES):
                asked = replace(request, settings=settings, logprobs=0)
                answer = (await model.ask(asked, f"{n:012x}", Slot(item.id, n, 0))).answer
                sampled.append(answer.text.strip().lower())
            letters = [s for s in sampled if s in ("a", "b")]
            print(item.id, sample, round(p, 3), letters.count("a"), len(letters))
            if p == p and letters:
                spread = max(p * (1 - p), 0.005) / len(letters)
                squares += (letters.count("a") / len(letters) - p) ** 2 / spread
                cells += 1
    if not cells:
        pytest.skip("the model begins no answer with a letter here")
    # Each square is about chi-square with one degree of freedom; this bound is beyond .999.
    assert squares < cells + 4.5 * (2 * cells) ** 0.5

"""Exact probabilities and sampled answers of a real model agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guard.audit.calls import Slot
from guard.audit.models import open_model
from guard.errors import GuardError
from guard.suites import Chat
from guard.suites.hbb.suite import Hbb, McqOptions, letter_probability

SAMPLES = 40


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_both_ways_give_one_probability() -> None:
    """Of the letters that SmolLM2 says first at temperature .8, in both orders of the options."""
    try:
        model = open_model("local:smollm2", timeout_s=300)
    except GuardError as error:
        pytest.skip(str(error))
    exact = Hbb(McqOptions(probabilities="logprobs"))
    items = list(exact.items())[:: 50 * 7][:3]
    squares, cells = 0.0, 0
    try:
        for item in items:
            for sample in (0, 1):
                request = exact.request(item, sample, ())
                assert isinstance(request, Chat)
                settings = {"temperature": 0.8, "top_p": 1, "max_tokens": 1}
                first = replace(request, settings={"temperature": 0, "max_tokens": 1})
                told = await model.ask(first, "0", Slot(item.id, sample, 0))
                p = letter_probability(told.first_tokens, 0.8)
                said = []
                for n in range(SAMPLES):
                    asked = replace(request, settings=settings, logprobs=0)
                    answer = (await model.ask(asked, f"{n:012x}", Slot(item.id, n, 0))).answer
                    said.append(answer.text.strip().lower())
                letters = [s for s in said if s in ("a", "b")]
                print(item.id, sample, round(p, 3), letters.count("a"), len(letters))
                if p == p and letters:
                    spread = max(p * (1 - p), 0.005) / len(letters)
                    squares += (letters.count("a") / len(letters) - p) ** 2 / spread
                    cells += 1
    finally:
        await model.aclose()
    if not cells:
        pytest.skip("the model begins no answer with a letter here")
    # Each square is about chi-square with one degree of freedom; this bound is beyond .999.
    assert squares < cells + 4.5 * (2 * cells) ** 0.5

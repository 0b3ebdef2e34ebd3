"""The real download and the real model; needs the network once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global litellm, provider
    import litellm

    from guard.local import provider


pytestmark = pytest.mark.slow("runs a whole small language model", limit_s=600)


def test_smollm2_is_fetched_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    runs = [CliRunner().invoke(main, ["models", "get", "smollm2", "--json"]) for _ in range(2)]
    assert [json.loads(run.stdout)["fetched"] for run in runs] == [True, False]

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    whole = litellm.completion(model=provider.SMOLLM2, messages=messages, max_tokens=20)
    assert whole.choices[0].message.content == "The capital of France is Paris."
    assert whole.choices[0].finish_reason == "stop"

    messages = [{"role": "user", "content": "Tell me about basil."}]
    stream = litellm.completion(
        model=provider.SMOLLM2, messages=messages, max_tokens=20, stream=True
    )
    chunks = list(stream)
    built = litellm.stream_chunk_builder(chunks)
    assert built is not None
    assert built.usage.completion_tokens == 20  # type: ignore[attr-defined]
    assert "asil" in "".join(c.choices[0].delta.content or "" for c in chunks)

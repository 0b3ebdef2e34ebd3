"""Four proxies and readers on one PostgreSQL: what the provider has served is there, once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.provider import Script, serving
from tests.watch.conftest import Server, server, until  # noqa: F401
from tests.watch.reading import events, responses, rows

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")

import openai

from guard.watch import schema
from tests.doors.proxy_process import Proxy, environment, guardrail, models, running

pytestmark = pytest.mark.slow("starts PostgreSQL and four proxies", limit_s=1500)

PROXIES = 4
EACH = 60  # requests to a proxy, of which every third is not streamed
AT_ONCE = 6
SAID = ["All is ", "well. ", "BIA", "S is ", "here. ", "And so on."]
CONFIG = f"""
guardrails:
{guardrail("bias", 'action: redact, metrics: true, events: "URL"', default_on=True)}
litellm_settings:
  num_retries: 0
general_settings:
  master_key: sk-of-the-tests-and-long-enough
"""


@contextmanager
def reading(url: str, folder: Path) -> Iterator[list[int]]:
    """Have the store read all the time by processes that only read; give their exit codes.

    The dashboard belongs here: it is one more of them.
    """
    codes: list[int] = []
    over = threading.Event()

    def read() -> None:
        command = [sys.executable, "-m", "guard", "rates", url, "--json", "--by", "model"]
        while not over.is_set():
            done = subprocess.run(
                command, cwd=folder, env=environment(folder), capture_output=True, timeout=300
            )
            codes.append(done.returncode)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield codes
    finally:
        over.set()
        thread.join()


def ask(proxy: Proxy) -> None:
    """Ask one proxy, several requests at a time."""
    key = "sk-of-the-tests-and-long-enough"
    messages: Any = [{"role": "user", "content": "Tell me."}]
    with openai.OpenAI(
        base_url=f"{proxy.url}/v1", api_key=key, max_retries=0, timeout=300
    ) as client:

        def one(number: int) -> str:
            if number % 3 == 0:
                whole = client.chat.completions.create(model="x", messages=messages)
                return whole.choices[0].message.content or ""
            stream = client.chat.completions.create(model="x", messages=messages, stream=True)
            return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert set(pool.map(one, range(EACH))) == {"All is well. [removed] And so on."}


def test_four_proxies_lose_no_event_and_double_none(
    server: Server,  # noqa: F811
    tmp_path: Path,
    until: Callable[..., None],  # noqa: F811
) -> None:
    url = server.database()
    with serving(Script([SAID], 0.005)) as provider:
        config = models(provider) + CONFIG.replace("URL", url)
        with ExitStack() as stack:

            def started(number: int) -> Proxy:
                folder = tmp_path / str(number)
                folder.mkdir()
                return stack.enter_context(running(folder, config))

            with ThreadPoolExecutor(2) as pool:
                proxies = list(pool.map(started, range(PROXIES)))
            codes = stack.enter_context(reading(url, tmp_path))
            with ThreadPoolExecutor(PROXIES) as pool:
                list(pool.map(ask, proxies))
            served = len(provider.served)
            assert served == PROXIES * EACH

            def all_there() -> bool:
                found = responses(url)
                return len(found) == served and all(r["outcome"] != "running" for r in found)

            until(all_there, 60.0)
        # The proxies have ended, and written what waited.
        assert len(provider.served) == served
    found, kept = responses(url), events(url)
    assert len(found) == served
    assert Counter(r["outcome"] for r in found) == {"completed": served}
    assert len({r["request_id"] for r in found}) == served
    assert {(r["judged"], r["found"], r["mitigated"], r["unjudged"]) for r in found} == {
        (3, 1, 1, 0)
    }
    assert len(kept) == 3 * served
    assert Counter(e["response_id"] for e in kept) == {r["id"]: 3 for r in found}
    assert rows(url, schema.drops) == []
    assert codes
    assert set(codes) == {0}

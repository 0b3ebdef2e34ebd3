"""Makes the call of a case, through its door, and reads all that comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import litellm
from litellm import Router

from guard.core import Guard
from guard.doors.driver import GuardedStream
from guard.policy import Policy
from tests.attacks.bound import Held
from tests.attacks.case import Case, Marked
from tests.attacks.provider import Provider
from tests.attacks.reading import Emitted, Joined, ProxyAnswered, parsed
from tests.doors.replay import close_clients
from tests.doors.table import end_tasks

LIMIT_S = 60.0  # what LiteLLM imports at a first call alone may take long
KEY = "sk-of-the-attacks-and-long-enough"  # of the proxy
_PLAIN = {
    "completion": "completion",
    "text_completion": "text_completion",
    "responses": "responses",
    "messages": "anthropic_messages_handler",
}
_APLAIN = {"messages": "anthropic_messages"}
_PATHS = {
    "chat": "/v1/chat/completions",
    "text": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


class Doors:
    """The doors of one process: its guards, its Router and where its provider is.

    ``behind`` is the port of the provider that stands behind the ``proxy``.
    """

    def __init__(self, provider: Provider, proxy: str = "", behind: int = 0) -> None:
        self._provider = f"http://127.0.0.1:{behind or provider.port}"
        self._openai = f"http://127.0.0.1:{provider.port}/v1"
        self._anthropic = f"http://127.0.0.1:{provider.port}"
        self._guard = Guard(Policy(), detector=Marked())
        self._guards: dict[str, Guard] = {}
        self._router: Router | None = None
        self._proxy = proxy
        self._client = httpx.Client(timeout=LIMIT_S)
        self._aclient = httpx.AsyncClient(timeout=LIMIT_S)

    async def aclose(self) -> None:
        """Close these clients, and all that LiteLLM keeps for this loop."""
        self._client.close()
        await self._aclient.aclose()
        await close_clients()

    def ended(self, seed: str) -> str:
        """Return how the proxy's provider saw a stream end; it may be in another process."""
        answer = ""
        for _ in range(100):
            answer = self._client.get(f"{self._provider}/seen/{seed}").text
            if answer != "open":
                break
            time.sleep(0.05)
        return answer

    def run(self, case: Case, loop: Callable[[Any], Any], *, guarded: bool = True) -> Emitted:
        """Return what came of a case; ``loop`` runs a coroutine. Unguarded, what LiteLLM gives."""
        # LiteLLM makes a client for each text completion, which is slow, unless one is given.
        text = case.route.door == "text"
        litellm.client_session = self._client if text else None
        litellm.aclient_session = self._aclient if text else None
        if case.via == "proxy":
            return self._proxied(case, guarded)
        if case.asynchronous:
            emitted = Emitted()
            try:
                loop(self._arun(case, emitted, guarded))
            except asyncio.TimeoutError as error:  # the builtin one only since Python 3.11
                emitted.error = error
            return emitted
        return self._run(case, guarded)

    def _run(self, case: Case, guarded: bool) -> Emitted:
        emitted = Emitted()
        function = self._function(case, guarded)
        try:
            if guarded and case.via == "intercept":
                with self._guard_of(case).intercept():
                    self._read(case, emitted, function)
            else:
                self._read(case, emitted, function)
        except Exception as error:
            emitted.error = error
            _findings(emitted, getattr(error, "trail", None))
        return emitted

    def _read(self, case: Case, emitted: Emitted, function: Any) -> None:
        response = function(**self._arguments(case))
        try:
            if not case.streamed:
                emitted.objects.append(response)
                return
            for chunk in response:
                emitted.objects.append(chunk)
                _DELAY.released(chunk)
        finally:
            _findings(emitted, getattr(response, "guard", None))

    async def _arun(self, case: Case, emitted: Emitted, guarded: bool) -> None:
        function = self._function(case, guarded)
        try:
            if guarded and case.via == "intercept":
                with self._guard_of(case).intercept():
                    await self._aread(case, emitted, function)
            else:
                await self._aread(case, emitted, function)
        except Exception as error:
            emitted.error = error
            _findings(emitted, getattr(error, "trail", None))

    async def _aread(self, case: Case, emitted: Emitted, function: Any) -> None:
        response = await function(**self._arguments(case))
        try:
            if not case.streamed:
                emitted.objects.append(response)
                return
            async for chunk in response:
                emitted.objects.append(chunk)
                _DELAY.released(chunk)
        finally:
            _findings(emitted, getattr(response, "guard", None))

    def _function(self, case: Case, guarded: bool) -> Any:
        name = case.door.split(" ")[0]
        base = name.removeprefix("a") if case.asynchronous else name
        plain = _PLAIN[base]
        if case.asynchronous:
            plain = _APLAIN.get(base, f"a{plain}")
        if not guarded or case.via == "intercept":
            return getattr(litellm, plain)
        if case.via == "router":
            routed = self._guard_of(case).wrap(self.router)
            return getattr(routed, "aanthropic_messages" if base == "messages" else name)
        return getattr(self._guard_of(case), name)

    def _guard_of(self, case: Case) -> Guard:
        key = repr(case.policy)
        if key not in self._guards:
            self._guards[key] = Guard(Policy(**case.policy), detector=self._guard.detector)
        return self._guards[key]

    @property
    def router(self) -> Router:
        if self._router is None:
            models = ("openai/x", "openai/gpt-4o", "anthropic/claude-sonnet-4-5")
            self._router = Router(
                model_list=[
                    {"model_name": model, "litellm_params": {"model": model, **self._place(model)}}
                    for model in models
                ],
                num_retries=0,
                disable_cooldowns=True,
            )
        return self._router

    def _place(self, model: str) -> dict[str, Any]:
        if model.startswith("replay"):
            return {}
        base = self._anthropic if model.startswith("anthropic") else self._openai
        return {"api_base": base, "api_key": "k"}

    def _arguments(self, case: Case) -> dict[str, Any]:
        route, said = case.route, f"attack-{case.seed}"
        call: dict[str, Any] = {"model": route.model, "stream": case.streamed}
        if case.via != "proxy":
            call |= self._place(route.model)
        if route.door == "text":
            call["prompt"] = said
        elif route.door == "responses":
            call["input"] = said
        else:
            call["messages"] = [{"role": "user", "content": said}]
        if route.door == "messages":
            call["max_tokens"] = 1000
        if case.n > 1:
            call["n"] = case.n
        if case.via != "proxy" and route.socket:
            call |= {"timeout": LIMIT_S, "max_retries": 0}
        return call

    def _proxied(self, case: Case, guarded: bool) -> Emitted:
        emitted = Emitted()
        body = self._arguments(case)
        if guarded:
            body["guardrails"] = [case.guardrail]
        url = self._proxy + _PATHS[case.route.door]
        headers = {"authorization": f"Bearer {KEY}"}
        try:
            with self._client.stream("POST", url, json=body, headers=headers) as response:
                if case.streamed and response.status_code == 200:
                    emitted.objects += response.iter_bytes()
                    return emitted
                said = response.read()
            if response.status_code != 200:
                emitted.error = ProxyAnswered(response.status_code, said.decode())
            else:
                emitted.objects.append(response.json())
        except Exception as error:
            emitted.error = error
        return emitted


def _findings(emitted: Emitted, trail: Any) -> None:
    if trail is not None:
        emitted.findings = len(trail.findings)


class Delay:
    """Tells what a stream holds back, of the guard in front of LiteLLM's own stream.

    That is what the guard has taken from LiteLLM less what its consumer has, looked at whenever
    the next chunk is taken: all that may go out has then been read.
    """

    def __init__(self) -> None:
        self.held: Held | None = None

    def begin(self, door: Any, policy: Policy) -> None:
        self.held = Held(policy)
        self._came, self._went = Joined(door), Joined(door)

    def taken(self, chunk: Any) -> None:
        if self.held is not None:
            self.held.take(self._pieces(chunk, self._came))

    def released(self, chunk: Any) -> None:
        if self.held is not None:
            self.held.release(self._pieces(chunk, self._went))

    def _pieces(self, chunk: Any, read: Joined) -> Any:
        if hasattr(chunk, "events"):
            said = [event.fields for event in chunk.events]
        elif isinstance(chunk, bytes):
            said = parsed(chunk)
        elif isinstance(chunk, dict):
            said = [chunk]
        else:
            said = [chunk.model_dump(warnings=False)]
            kind = said[0].get("type")
            said[0]["type"] = getattr(kind, "value", kind)
        return [one for each in said for one in read(each)]


_DELAY = Delay()


@contextmanager
def measured() -> Iterator[Delay]:
    """Give the measure of this process; meanwhile the guard's driver tells it what it takes."""
    take = GuardedStream._take

    def noted(self: Any, chunk: Any) -> bool:
        _DELAY.taken(chunk)
        return take(self, chunk)

    GuardedStream._take = noted  # type: ignore[method-assign]
    try:
        yield _DELAY
    finally:
        GuardedStream._take = take  # type: ignore[method-assign]


class Loop:
    """An event loop of the calling thread, for LiteLLM's async calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def __call__(self, run: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(run, LIMIT_S))

    def close(self) -> None:
        self._loop.run_until_complete(end_tasks())
        asyncio.set_event_loop(None)
        self._loop.close()

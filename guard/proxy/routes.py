"""What each route and each kind of call of LiteLLM's proxy brings: text of a model or none.

``routes.toml`` is the table. Whatever does not stand there is refused where the guardrail is on, so
a route of a newer LiteLLM is closed until it has its line.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from guard.doors.litellm.compat import name_guardrails, request_body
from guard.errors import ConfigError

Outcome = Literal["guarded", "no text", "refused"]

_TABLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("routes.toml").read_text(encoding="utf-8")
)
_CALLS, _ROUTES = _TABLES["calls"], _TABLES["routes"]


def outcome_of_call(call_type: str) -> Outcome:
    """Return what becomes of a call of LiteLLM's kind ``call_type``."""
    if call_type in _CALLS["guarded"]:
        return "guarded"
    return "no text" if call_type in _CALLS["no_text"] else "refused"


def name_of_call(call_type: str) -> str:
    """Return what the answers of a kind of call are called in a sentence."""
    return str(_CALLS["names"].get(call_type, f"calls of the kind {call_type!r}"))


def outcome_of_route(endpoint: Callable[..., Any] | None) -> Outcome:
    """Return what becomes of a request that ``endpoint``, a function of LiteLLM's, would serve."""
    module = getattr(endpoint, "__module__", None) or ""
    name = getattr(endpoint, "__name__", "")
    if not module.startswith(("litellm.proxy.", "litellm_enterprise.", "fastapi.applications")):
        return "refused"
    module = module.removeprefix("litellm.proxy.")
    tables = [key for key, table in _ROUTES.items() if name in table.get(module, ())]
    if not tables:
        return "refused"
    return "guarded" if "guarded" in tables else "no text"


def _says_who(dependency: object) -> bool:
    """Whether a dependency of LiteLLM's says who is calling, by what it says it returns."""
    annotations = getattr(dependency, "__annotations__", {})
    return "UserAPIKeyAuth" in str(annotations.get("return"))


class _Dependencies(dict[Callable[..., Any], Callable[..., Any]]):
    """FastAPI's replaced dependencies: each that says who is calling is followed by a check.

    Those of websockets are several, and LiteLLM loads some late: they are told by what they return.
    """

    def __init__(self, given: Any, check: Callable[[Any, Any], Awaitable[None]]) -> None:
        super().__init__(given)
        self._check = check

    def __bool__(self) -> bool:
        return True  # else FastAPI would not ask

    def get(self, known_by: Any, default: Any = None) -> Any:
        ask = super().get(known_by, default)
        if not _says_who(known_by):
            return ask

        @functools.wraps(ask)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            key = await ask(*args, **kwargs)
            for connection in kwargs.values():
                if hasattr(connection, "scope"):
                    await self._check(connection, key)
            return key

        return checked


def watch(refusal: Callable[[dict[str, Any], str], Exception | None]) -> None:
    """Have every request and websocket of LiteLLM's proxy checked once its key is known.

    On some routes LiteLLM asks no guardrail at all (threads, its queue, retrieval with an answer),
    and of websockets some only about what the socket itself says, so those are refused where it
    says who is calling, by FastAPI's way to replace a dependency. ``refusal`` takes a request's
    data as LiteLLM gives them to guardrails, and the route; it returns the error to raise, None
    where no guardrail is on. Raises ConfigError where LiteLLM's own way to know who is calling
    cannot be told any more: then no route would be refused.
    """
    server = sys.modules.get("litellm.proxy.proxy_server")
    if server is None:  # no proxy runs here
        return
    if not _says_who(getattr(server, "user_api_key_auth", None)):
        raise ConfigError(
            "guard does not find where LiteLLM's proxy asks who is calling, so it could refuse no "
            "route; use a LiteLLM of the supported range."
        )
    app = server.app
    if isinstance(app.dependency_overrides, _Dependencies):
        return

    async def check(connection: Any, key: Any) -> None:
        if outcome_of_route(connection.scope.get("endpoint")) != "refused":
            return
        route = getattr(connection.scope.get("route"), "path", connection.url.path)
        kind = connection.scope.get("method", "the websocket")
        error = refusal(await asked_by(key, await _body(connection)), f"{kind} {route}")
        if error is not None:
            raise error

    app.dependency_overrides = _Dependencies(app.dependency_overrides, check)


async def _body(connection: Any) -> dict[str, Any]:
    """Return what a request asks for; a websocket says it in its address."""
    if connection.scope["type"] != "websocket":
        return await request_body(connection)
    said = dict(connection.query_params)
    if "guardrails" in said:
        said["guardrails"] = [name.strip() for name in said["guardrails"].split(",")]
    return said


async def asked_by(key: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with the guardrails that the key, its team and policies ask for."""
    given = body.get("metadata")
    body = body | {
        "metadata": {
            **(given if isinstance(given, dict) else {}),
            "user_api_key_metadata": key.metadata,
            "user_api_key_team_metadata": key.team_metadata,
        }
    }
    body.pop("litellm_metadata", None)
    await name_guardrails(body, key)
    return body

"""Which routes and call types of LiteLLM's proxy return a model's text.

``routes.toml`` is the table. A route that it does not list is refused if the guardrail is on, so
new routes of a newer LiteLLM stay closed until they are added.
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
    """Return how the guardrail handles calls of LiteLLM's ``call_type``."""
    if call_type in _CALLS["guarded"]:
        return "guarded"
    return "no text" if call_type in _CALLS["no_text"] else "refused"


def name_of_call(call_type: str) -> str:
    """Return the name of a call type's answers, for messages."""
    return str(_CALLS["names"].get(call_type, f"calls of the kind {call_type!r}"))


def outcome_of_route(endpoint: Callable[..., Any] | None) -> Outcome:
    """Return how the guardrail handles requests that LiteLLM's function ``endpoint`` serves."""
    module = getattr(endpoint, "__module__", None) or ""
    name = getattr(endpoint, "__name__", "")
    if not module.startswith(("litellm.proxy.", "litellm_enterprise.", "fastapi.applications")):
        return "refused"
    module = module.removeprefix("litellm.proxy.")
    tables = [key for key, table in _ROUTES.items() if name in table.get(module, ())]
    if not tables:
        return "refused"
    return "guarded" if "guarded" in tables else "no text"


def _authenticates(dependency: object) -> bool:
    """Whether a FastAPI dependency of LiteLLM authenticates the caller, by its return type."""
    annotations = getattr(dependency, "__annotations__", {})
    return "UserAPIKeyAuth" in str(annotations.get("return"))


class _Dependencies(dict[Callable[..., Any], Callable[..., Any]]):
    """FastAPI's dependency overrides, with a check after each one that authenticates.

    There are several for websockets, and LiteLLM loads some of them late; so they are recognised
    by their return type, when FastAPI looks them up.
    """

    def __init__(self, overrides: Any, check: Callable[[Any, Any], Awaitable[None]]) -> None:
        super().__init__(overrides)
        self._check = check

    def __bool__(self) -> bool:
        return True  # else FastAPI would not look anything up

    def get(self, original: Any, default: Any = None) -> Any:
        authenticate = super().get(original, default)
        if not _authenticates(original):
            return authenticate

        @functools.wraps(authenticate)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            key = await authenticate(*args, **kwargs)
            for connection in kwargs.values():
                if hasattr(connection, "scope"):
                    await self._check(connection, key)
            return key

        return checked


def watch(refusal: Callable[[dict[str, Any], str], Exception | None]) -> None:
    """Check every request and websocket of LiteLLM's proxy after authentication.

    On some routes LiteLLM calls no guardrail at all (threads, its queue, retrieval with an
    answer), and for some websockets only on the client's messages. These routes are refused after
    authentication, by FastAPI's dependency overrides. ``refusal`` takes a request's data, as
    LiteLLM passes them to guardrails, and the route; it returns the error to raise, or None if no
    guardrail is on. Raises ConfigError if LiteLLM's authentication is not found, as then no route
    could be refused.
    """
    server = sys.modules.get("litellm.proxy.proxy_server")
    if server is None:  # no proxy runs here
        return
    if not _authenticates(getattr(server, "user_api_key_auth", None)):
        raise ConfigError(
            "guard does not find where LiteLLM's proxy authenticates requests, so it could refuse "
            "no route; use a LiteLLM of the supported range."
        )
    app = server.app
    if isinstance(app.dependency_overrides, _Dependencies):
        return

    async def check(connection: Any, key: Any) -> None:
        if outcome_of_route(connection.scope.get("endpoint")) != "refused":
            return
        route = getattr(connection.scope.get("route"), "path", connection.url.path)
        kind = connection.scope.get("method", "the websocket")
        data = await with_guardrails(key, await _body(connection))
        error = refusal(data, f"{kind} {route}")
        if error is not None:
            raise error

    app.dependency_overrides = _Dependencies(app.dependency_overrides, check)


async def _body(connection: Any) -> dict[str, Any]:
    """Return a request's parameters; a websocket has them in its URL."""
    if connection.scope["type"] != "websocket":
        return await request_body(connection)
    query = dict(connection.query_params)
    if "guardrails" in query:
        query["guardrails"] = [name.strip() for name in query["guardrails"].split(",")]
    return query


async def with_guardrails(key: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` with the guardrails of the key, its team and its policies."""
    metadata = body.get("metadata")
    body = body | {
        "metadata": {
            **(metadata if isinstance(metadata, dict) else {}),
            "user_api_key_metadata": key.metadata,
            "user_api_key_team_metadata": key.team_metadata,
        }
    }
    body.pop("litellm_metadata", None)
    await name_guardrails(body, key)
    return body

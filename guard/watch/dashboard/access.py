"""Who may read the dashboard: every request passes here before anything looks at its path.

A request must name a host that is known (a page of another site whose name was pointed here by its
owner does not), and where a token is set, bear it: as ``Authorization: Bearer TOKEN``, or as the
cookie that the form of the answer 401 gets for it. One that changes anything must come from a page
of this host. The token is never part of an address.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from guard.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST = 16
"""Characters of a token."""
LOGIN = "/login"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FORM_BYTES = 4_096
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer, with which a form's Origin is null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>guard</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"></head>
<body><main><h1>guard</h1><p role="status">{said}</p><form method="post" action="{login}">
<p><label>Token <input type="password" name="token" autocomplete="current-password" required
 autofocus></label> <button>Sign in</button></p></form></main></body></html>
"""


def checked_token(token: str) -> str:
    """Return ``token``; raises UsageError where it is too short or no header could bear it."""
    if len(token) < LEAST or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"A token has at least {LEAST} characters, letters, digits and signs without spaces; "
            "leave it out to have one made."
        )
    return token


def checked_host(name: str) -> str:
    """Return ``name``; raises UsageError where it is no name or address that a request can have."""
    found = _HOST.fullmatch(name.lower())
    if not _is_address(name) and (found is None or found["name"] != name.lower()):
        raise UsageError(
            f"--allow-host takes a name such as guard.example.org, no port, got {name[:80]!r}."
        )
    return name


@dataclass(frozen=True)
class Rules:
    """What a request has to show: a known host, and ``token`` unless it is None.

    ``hosts`` are names and addresses without ports. ``port`` tells cookies of one host apart.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    port: int = 0
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return f"guard-{self.port}"

    def known(self, host: str, server: str) -> bool:
        """Whether ``host``, a header, names this server, whose own address is ``server``."""
        name = _name(host)
        if name is None:
            return False
        given = {_plain(one) for one in (*_LOOPBACK, *self.hosts)}
        return name in given or (_is_address(server) and name == _plain(server))


class Access:
    """Answers 421 and 401, or hands a request on to ``app``; adds the headers of every answer."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over a websocket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(n.encode(), v.encode()) for n, v in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *told]}
            await send(message)

        await self._answer(scope, receive, headed)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = _all(scope, b"host")
        server = (scope.get("server") or ("",))[0]
        if len(hosts) != 1 or not self._rules.known(hosts[0], server):
            await _say(scope, send, 421, "This host is not known here; --allow-host adds it.")
            return
        token = self._rules.token
        bearer = _bearer(scope)
        if token is not None and not (_same(bearer, token) or self._signed_in(scope)):
            await self._sign_in(scope, receive, send, bearer is not None)
            return
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS", "TRACE")
        # Nobody else's page can send the header of a token that it does not know.
        trusted = token is not None and _same(bearer, token)
        if changes and not trusted and not _from_here(scope, hosts[0]):
            await _say(scope, send, 403, "This came from another site.")
            return
        await self._app(scope, receive, send)

    def _signed_in(self, scope: Scope) -> bool:
        parts = "; ".join(_all(scope, b"cookie")).split(";")
        pairs = (part.strip().partition("=") for part in parts)
        return any(n == self._rules.cookie and _same(v, self._rules.session) for n, _, v in pairs)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send, wrong: bool) -> None:
        """Answer one without a token: with the form, or with the cookie for what it brought."""
        if scope["method"] == "POST" and scope["path"] == LOGIN:
            if not _from_here(scope, _all(scope, b"host")[0]):
                await _say(scope, send, 403, "This came from another site.")
                return
            form = parse_qs((await _body(receive)).decode("latin-1"))
            if _same(form.get("token", [""])[0].strip(), self._rules.token or ""):
                cookie = f"{self._rules.cookie}={self._rules.session}; HttpOnly; SameSite=Strict"
                told = [("location", "/"), ("set-cookie", f"{cookie}; Path=/")]
                await _say(scope, send, 303, "", told)
                return
            wrong = True
        said = "This token is wrong." if wrong else "The dashboard asks for its token."
        bears = [("www-authenticate", "Bearer")]
        if "text/html" in ",".join(_all(scope, b"accept")):
            page = _FORM.format(said=said, login=LOGIN)
            await _say(scope, send, 401, page, bears, "text/html")
        else:
            await _say(scope, send, 401, said, bears)


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _bearer(scope: Scope) -> str | None:
    given = _all(scope, b"authorization")
    kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if kind.lower() == "bearer" else None


def _same(given: str | None, wanted: str) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


def _from_here(scope: Scope, host: str) -> bool:
    """Whether the page that sent a request was of this host; every browser says so."""
    origins = _all(scope, b"origin")
    if len(origins) != 1:
        return False
    scheme, _, name = origins[0].partition("://")
    return scheme in ("http", "https") and name.lower() == host.lower()


def _name(host: str) -> str | None:
    found = _HOST.fullmatch(host.lower())
    return _plain(found["name"]) if found else None


def _plain(host: str) -> str:
    """Return a name or an address as it is compared: without brackets, an address in one form."""
    name = host.lower().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


async def _body(receive: Receive) -> bytes:
    """Return the beginning of a request's body: no token is longer."""
    found = b""
    while len(found) < _FORM_BYTES:
        message = await receive()
        found += message.get("body", b"")
        if not message.get("more_body"):
            break
    return found[:_FORM_BYTES]


async def _say(
    scope: Scope,
    send: Send,
    status: int,
    text: str,
    headers: Iterable[tuple[str, str]] = (),
    kind: str = "text/plain",
) -> None:
    body = text.encode()
    told = [
        ("content-type", f"{kind}; charset=utf-8"),
        ("content-length", str(len(body))),
        *headers,
    ]
    raw = [(name.encode(), value.encode()) for name, value in told]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    empty = scope["method"] == "HEAD"
    await send({"type": "http.response.body", "body": b"" if empty else body})

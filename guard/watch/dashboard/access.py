"""Access control of the dashboard: every request passes here first.

A request's ``Host`` must be known, which stops DNS rebinding. If a token is set, the request must
carry it as ``Authorization: Bearer TOKEN``, or carry the cookie that the sign-in form sets. A
request that changes anything must have an ``Origin`` of this host, which stops cross-site forgery.
The token is never part of a URL.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from guard.listening import bearer_token, is_known_host, same_secret

LOGIN = "/login"
_FORM_BYTES = 4_096
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # no-referrer would make the Origin of forms null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>guard</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"></head>
<body><main><h1>guard</h1><p role="status">{message}</p><form method="post" action="{login}">
<p><label>Token <input type="password" name="token" autocomplete="current-password" required
 autofocus></label> <button>Sign in</button></p></form></main></body></html>
"""


@dataclass(frozen=True)
class Rules:
    """What a request needs: a known host, and ``token`` unless it is None.

    ``hosts`` are names and addresses without ports. ``port`` is part of the cookie's name, because
    browsers share cookies between the ports of a host. ``session`` is the cookie's value.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    port: int = 0
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the session cookie."""
        return f"guard-{self.port}"

    def known(self, host: str, server: str) -> bool:
        """Whether ``host``, a header, names this server, which listens on ``server``."""
        return is_known_host(host, server, self.hosts)


class Access:
    """ASGI middleware: answers 401, 403 or 421, or calls ``app``; adds security headers."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the dashboard uses no websockets
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(n.encode(), v.encode()) for n, v in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        answer = await self._refusal(scope, receive) or self._app
        await answer(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer to a request that may not pass, None to one that may."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        server = (scope.get("server") or ("",))[0]
        if len(hosts) != 1 or not self._rules.known(hosts[0], server):
            return PlainTextResponse(
                "This host name is not known; guard dashboard --allow-host adds it.", 421
            )
        token, bearer = self._rules.token, bearer_token(headers.getlist("authorization"))
        # Another site's page does not know the token, so it cannot send the header.
        trusted = token is not None and same_secret(bearer, token)
        signs_in = token is not None and not (trusted or self._signed_in(headers))
        if signs_in and (scope["method"], scope["path"]) != ("POST", LOGIN):
            return _challenge_response(headers, wrong=bearer is not None)
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS", "TRACE")
        if changes and not trusted and not _same_origin(headers):
            return PlainTextResponse("Refused: this request came from a page of another site.", 403)
        if signs_in:
            return await self._sign_in(headers, receive)
        # A tab that shows the form still, after another has signed in.
        return RedirectResponse("/", 303) if token and scope["path"] == LOGIN else None

    def _signed_in(self, headers: Headers) -> bool:
        parts = "; ".join(headers.getlist("cookie")).split(";")
        pairs = (part.strip().partition("=") for part in parts)
        cookie, session = self._rules.cookie, self._rules.session
        return any(name == cookie and same_secret(value, session) for name, _, value in pairs)

    async def _sign_in(self, headers: Headers, receive: Receive) -> Response:
        """Answer to the sign-in form."""
        form = parse_qs((await _body(receive)).decode("latin-1"))
        if not same_secret(form.get("token", [""])[0].strip(), self._rules.token or ""):
            return _challenge_response(headers, wrong=True)
        cookie = f"{self._rules.cookie}={self._rules.session}; HttpOnly; SameSite=Strict; Path=/"
        return RedirectResponse("/", 303, {"set-cookie": cookie})


def _challenge_response(headers: Headers, *, wrong: bool) -> Response:
    """Ask for the token: a browser by a form."""
    message = "This token is wrong." if wrong else "The dashboard needs its token."
    bearer = {"www-authenticate": "Bearer"}
    if "text/html" in ",".join(headers.getlist("accept")):
        return HTMLResponse(_FORM.format(message=message, login=LOGIN), 401, bearer)
    return PlainTextResponse(message, 401, bearer)


def _same_origin(headers: Headers) -> bool:
    """Whether a request's Origin, which browsers always send with a form, is this host."""
    origins = headers.getlist("origin")
    scheme, _, name = origins[0].partition("://") if len(origins) == 1 else ("", "", "")
    return scheme in ("http", "https") and name.lower() == headers["host"].lower()


async def _body(receive: Receive) -> bytes:
    """Return the first 4,096 bytes of a request's body; no token is longer."""
    body = b""
    while len(body) < _FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return body[:_FORM_BYTES]

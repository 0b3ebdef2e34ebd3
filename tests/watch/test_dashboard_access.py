"""Nobody without the token reads a byte of the store, by whatever way it is asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.errors import UsageError
from guard.listening import MIN_TOKEN, ListeningUrl, checked_token
from guard.watch.dashboard.access import LOGIN, Access, Rules
from guard.watch.dashboard.app import application
from guard.watch.dashboard.serve import serve
from guard.watch.store import Store
from tests.rows import rows
from tests.watch.serving import Running, fill, running

TOKEN = "correct-horse-battery-staple"
HOST = "127.0.0.1:8472"
Headers = list[tuple[str, str]]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Open:
    """What stands behind the door: it tells everybody everything."""

    def __init__(self) -> None:
        self.reached = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})


def asked(app: Any, method: str, path: str, headers: Headers, body: bytes = b"") -> Answer:
    """Ask as a server does, with any path and any headers."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(dict(message))

    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": target,
        "raw_path": target.encode("utf-8", "replace"),
        "query_string": query.encode("utf-8", "replace"),
        "headers": [(n.encode(), v.encode("utf-8", "replace")) for n, v in headers],
        "server": ("127.0.0.1", 8472),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }
    asyncio.run(app(scope, receive, send))
    fields = {n.decode().lower(): v.decode() for n, v in messages[0]["headers"]}
    return Answer(
        messages[0]["status"], fields, b"".join(one.get("body", b"") for one in messages[1:])
    )


def bearing(token: str) -> Headers:
    return [("host", HOST), ("authorization", f"Bearer {token}")]


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X"]
PIECES = [
    "/",
    "..",
    "%2e%2e",
    "//",
    "\\",
    "static",
    "login",
    "live/events",
    ";",
    "?",
    "\0",
    "é",
    ".",
]
paths = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES)).map("".join)).map(
    lambda text: f"/{text}"
)


@given(st.sampled_from(METHODS), paths, st.sampled_from(["", "text/html"]), st.binary(max_size=60))
def test_every_path_and_method_needs_the_token(
    method: str, path: str, accept: str, body: bytes
) -> None:
    behind = Open()
    headers = [("host", HOST), ("accept", accept), ("origin", f"http://{HOST}")]
    answer = asked(Access(behind, Rules(TOKEN)), method, path, headers, body)
    assert answer.status == 401
    assert behind.reached == 0
    assert b"secret" not in answer.body
    assert "set-cookie" not in answer.headers
    assert answer.headers["www-authenticate"] == "Bearer"


@given(
    st.one_of(
        st.text(max_size=60),
        st.integers(0, len(TOKEN)).map(lambda n: TOKEN[:n] + TOKEN[n + 1 :]),
        st.sampled_from([TOKEN.upper(), f"{TOKEN} {TOKEN}", TOKEN[:-1], TOKEN + "x", "Bearer"]),
    ).filter(lambda text: text.strip() != TOKEN)
)
def test_no_other_token_opens_it(wrong: str) -> None:
    behind = Open()
    app = Access(behind, Rules(TOKEN))
    cookie = ("cookie", f"{Rules(TOKEN, port=0).cookie}={wrong}")
    for headers in (bearing(wrong), [("host", HOST), cookie]):
        assert asked(app, "GET", "/", headers).status == 401
    query = f"/?token={TOKEN}&access_token={TOKEN}"
    assert asked(app, "GET", query, [("host", HOST)]).status == 401
    assert asked(app, "GET", "/", [("host", HOST), ("cookie", f"guard-0={TOKEN}")]).status == 401
    assert behind.reached == 0


def test_the_token_opens_it_as_a_header_and_by_the_form() -> None:
    behind = Open()
    app = Access(behind, Rules(TOKEN, port=8472))
    assert asked(app, "GET", "/", bearing(TOKEN)).body == b"secret"
    form = f"token={TOKEN}".encode()
    origin = ("origin", f"http://{HOST}")
    answer = asked(app, "POST", LOGIN, [("host", HOST), origin], form)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert set(attributes) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert TOKEN not in answer.headers["set-cookie"]
    assert cookie.startswith("guard-8472=")
    headers = [("host", HOST), ("cookie", f"other=1; {cookie}")]
    assert asked(app, "GET", "/", headers).body == b"secret"
    # It is of this process: another dashboard does not take it.
    assert asked(Access(behind, Rules(TOKEN, port=8472)), "GET", "/", headers).status == 401
    wrong = asked(app, "POST", LOGIN, [("host", HOST), origin], b"token=wrong")
    assert (wrong.status, wrong.body) == (401, b"This token is wrong.")
    elsewhere = [("host", HOST), ("origin", "http://evil.example")]
    assert asked(app, "POST", LOGIN, elsewhere, form).status == 403
    assert asked(app, "POST", LOGIN, [("host", HOST), origin], b"x" * 10_000 + form).status == 401


def test_a_tab_that_still_shows_the_form_goes_to_the_dashboard() -> None:
    behind, rules = Open(), Rules(TOKEN)
    app = Access(behind, rules)
    signed = [("host", HOST), ("cookie", f"{rules.cookie}={rules.session}")]
    posted = [*signed, ("origin", f"http://{HOST}")]
    for method, headers in (("GET", signed), ("POST", posted)):
        answer = asked(app, method, LOGIN, headers, f"token={TOKEN}".encode())
        assert (answer.status, answer.headers["location"]) == (303, "/")
    assert asked(app, "POST", LOGIN, signed).status == 403
    assert behind.reached == 0


HOSTS = [
    "evil.example",
    "evil.example:8472",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "",
    "localhost@evil.example",
    "127.0.0.1:8472,evil.example",
    "127.0.0.1 evil",
    "127.1",
    "0.0.0.0",
    "2130706433",
    "0x7f.1",
    "localhost.",
    "[::2]",
    "[::1",
    "127.0.0.1:",
    "127.0.0.1:99999999",
]


@rows("host, token", product(HOSTS, (None, TOKEN)))
def test_a_name_that_was_pointed_here_is_refused_even_with_the_token(
    host: str, token: str | None
) -> None:
    behind = Open()
    headers = [("host", host), ("authorization", f"Bearer {TOKEN}")]
    answer = asked(Access(behind, Rules(token)), "GET", "/", headers)
    assert (answer.status, behind.reached) == (421, 0)


@given(st.from_regex(r"[a-zA-Z0-9.:\[\]@, _-]{0,30}", fullmatch=True))
def test_only_known_hosts_are_answered(host: str) -> None:
    name = host.lower().rpartition(":")[0] if host.count(":") == 1 else host.lower()
    answer = asked(Access(Open(), Rules()), "GET", "/", [("host", host)])
    known = name in ("localhost", "127.0.0.1", "[::1]") or host.lower().startswith("[::1]:")
    assert known or answer.status == 421


def test_two_hosts_are_one_too_many_and_allowed_ones_are_known() -> None:
    app = Access(Open(), Rules(None, ("Guard.Example", "192.0.2.7", "fe80::1")))
    assert asked(app, "GET", "/", [("host", HOST), ("host", "evil")]).status == 421
    assert asked(app, "GET", "/", []).status == 421
    for host in ("guard.example", "GUARD.example:80", "192.0.2.7:1", "[FE80:0::1]:1", "[::1]"):
        assert asked(app, "GET", "/", [("host", host)]).status == 200


ORIGINS = (None, "null", "http://evil.example", f"http://evil.example:8472/{HOST}", "http://",
           f"http://{HOST}.evil.example", "http://127.0.0.1:1", f"file://{HOST}",
           HOST)  # fmt: skip


@rows("origin, method", product(ORIGINS, ("POST", "PUT", "DELETE", "PATCH", "X")))
def test_another_site_changes_nothing(origin: str | None, method: str) -> None:
    behind = Open()
    headers = [("host", HOST)] + ([("origin", origin)] if origin is not None else [])
    rules = Rules(TOKEN)
    signed = [*headers, ("cookie", f"{rules.cookie}={rules.session}")]
    assert asked(Access(behind, Rules()), method, "/review", headers).status == 403
    assert asked(Access(behind, rules), method, "/review", signed).status == 403
    assert behind.reached == 0
    own = [("host", HOST), ("origin", f"http://{HOST}")]
    assert asked(Access(behind, Rules()), method, "/review", own).status == 200
    assert asked(Access(behind, rules), method, "/review", bearing(TOKEN)).status == 200


def test_a_websocket_is_closed_before_anything_else() -> None:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {"type": "websocket", "path": "/live/events", "headers": []}
    for rules in (Rules(), Rules(TOKEN)):
        asyncio.run(Access(Open(), rules)(scope, None, send))  # type: ignore[arg-type]
    assert [one["type"] for one in messages] == ["websocket.close"] * 2


@pytest.mark.parametrize("status", ["open", "401", "421", "404"])
def test_every_answer_has_the_headers(tmp_path: Path, status: str) -> None:
    Store(str(tmp_path / "guard.db")).prepare()
    app = application(Store(str(tmp_path / "guard.db")), Rules(TOKEN))
    path = "/nothing" if status == "404" else "/"
    headers = bearing("wrong" if status == "401" else TOKEN)
    if status == "421":
        headers[0] = ("host", "evil.example")
    fields = asked(app, "GET", path, headers).headers
    assert "default-src 'none'" in fields["content-security-policy"]
    assert "unsafe" not in fields["content-security-policy"]
    assert "frame-ancestors 'none'" in fields["content-security-policy"]
    assert fields["x-content-type-options"] == "nosniff"
    assert fields["cache-control"] == "no-store"
    assert "server" not in fields


@pytest.mark.parametrize(
    "token", ["", "short", "x" * (MIN_TOKEN - 1), "x" * 20 + " ", "é" * 30, "a\nb" * 9]
)
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match=f"at least {MIN_TOKEN} characters"):
        checked_token(token)
    assert checked_token(TOKEN) == TOKEN


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dashboard that listens at every address of this machine, and behind a proxy."""
    store = str(tmp_path_factory.mktemp("beyond") / "guard.db")
    fill(f"sqlite:///{store}")
    with running(store, "--host", "0.0.0.0", "--allow-host", "guard.example.org") as one:
        yield one


def sent(address: tuple[str, int], request: bytes) -> bytes:
    """Return what a server answers to these bytes, until it is silent for a while."""
    found = b""
    with socket.create_connection(address, 20) as connection:
        connection.sendall(request)
        try:
            while more := connection.recv(65_536):
                found += more
                connection.settimeout(0.3)
        except (TimeoutError, ConnectionError):
            pass
    return found


def own_address() -> str | None:
    """Return an address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing
            address: str = one.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


TRICKS = {
    "plain": "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "up": "GET /static/../responses HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "coded": "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "absolute": "GET http://{host}/responses HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "absolute elsewhere": "GET http://evil.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "double": "GET //responses HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "static": "GET /static/dashboard.js HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "events": "GET /live/events HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n",
    "all": "OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "trace": "TRACE / HTTP/1.1\r\nHost: {host}\r\nX: 1\r\n\r\n",
    "connect": "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "head": "HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "old": "GET / HTTP/1.0\r\n\r\n",
    "older": "GET /\r\n\r\n",
    "no host": "GET / HTTP/1.1\r\n\r\n",
    "two hosts": "GET / HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n",
    "forwarded": "GET / HTTP/1.1\r\nHost: evil\r\nX-Forwarded-Host: {host}\r\n"
    "X-Forwarded-For: 127.0.0.1\r\n\r\n",
    "proxied": "GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 127.0.0.1\r\n"
    "Forwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Original-URL: /static\r\n\r\n",
    "websocket": "GET /live/events HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "http 2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "upgraded": "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "two at once": "GET / HTTP/1.1\r\nHost: {host}\r\n\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "smuggled": "POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Length: 6\r\n"
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "cookie": "GET / HTTP/1.1\r\nHost: {host}\r\nCookie: guard-{port}=\r\n\r\n",
    "empty": "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer \r\n\r\n",
    "basic": "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic Og==\r\n\r\n",
    "long": "GET /{long} HTTP/1.1\r\nHost: {host}\r\n\r\n",
}


def test_no_trick_gets_a_byte_of_the_store(beyond: Running, subtests: pytest.Subtests) -> None:
    assert beyond.token is not None
    tricks = list(product(filter(None, ("127.0.0.1", own_address())), TRICKS))

    def tried(address: str, trick: str) -> bytes:
        host = f"{address}:{beyond.port}"
        text = TRICKS[trick].format(host=host, port=beyond.port, long="x" * 9_000)
        return sent((address, beyond.port), text.encode())

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(tried, *zip(*tricks, strict=True)))
    for (address, trick), answer in zip(tricks, answers, strict=True):
        with subtests.test(address=address, trick=trick):
            statuses = [
                int(line.split()[1]) for line in answer.split(b"\r\n") if line[:7] == b"HTTP/1."
            ]
            assert statuses
            assert set(statuses) <= {400, 401, 403, 421, 431}
            for secret in SECRETS:
                assert secret not in answer
            assert b"uvicorn" not in answer.lower()


SECRETS = (b"quiet", b"completed", b"tenant", b"Prevalence", b"EventSource", b"sqlite")


def test_whoever_has_the_token_reads_what_the_tricks_did_not(beyond: Running) -> None:
    bears = {"authorization": f"Bearer {beyond.token}"}
    for path, word in (("?by=tenant", "quiet"), ("responses?show=all", "completed")):
        answer = httpx.get(f"{beyond.url}{path}", headers=bears, timeout=60)
        assert answer.status_code == 200
        assert word in answer.text
        assert "server" not in answer.headers
    with httpx.stream("GET", f"{beyond.url}live/events", headers=bears, timeout=60) as live:
        assert '"found": 1' in next(line for line in live.iter_lines() if line.startswith("data"))


def test_a_name_of_another_is_refused_by_the_real_server(beyond: Running) -> None:
    request = (
        f"GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {beyond.token}\r\n\r\n"
    )
    assert sent(("127.0.0.1", beyond.port), request.encode()).startswith(b"HTTP/1.1 421")


class _Announced(Exception):
    """Ends the dashboard as soon as it listens."""


@pytest.mark.parametrize(
    ("host", "allowed", "needs_token"),
    [
        ("127.0.0.1", [], False),
        ("localhost", ["localhost", "LOCALHOST", "127.0.0.2", "::1", "[::1]"], False),
        ("127.0.0.1", ["guard.example.org"], True),
        ("127.0.0.1", ["localhost", "guard.example.org"], True),
        ("127.0.0.1", ["localhost.example.org"], True),
        ("127.0.0.1", ["127.0.0.1.example.org"], True),
        ("127.0.0.1", ["192.0.2.7"], True),
        ("0.0.0.0", [], True),
    ],
)
def test_whoever_answers_to_a_name_of_other_machines_needs_a_token(
    tmp_path: Path, host: str, allowed: list[str], needs_token: bool
) -> None:
    store = Store(str(tmp_path / "guard.db"))
    store.prepare()
    places: list[ListeningUrl] = []

    def announced(place: ListeningUrl) -> None:
        places.append(place)
        raise _Announced

    with pytest.raises(_Announced):
        serve(store, host, 0, None, allowed, lambda _: None, announced)
    assert (places[0].generated_token is not None) == needs_token


def test_behind_a_proxy_nobody_reads_without_the_token(beyond: Running) -> None:
    request = b"GET / HTTP/1.1\r\nHost: guard.example.org\r\n\r\n"
    assert sent(("127.0.0.1", beyond.port), request).startswith(b"HTTP/1.1 401")
    headers = {"host": "guard.example.org", "authorization": f"Bearer {beyond.token}"}
    address = f"http://127.0.0.1:{beyond.port}/"
    assert httpx.get(address, headers=headers, timeout=60).status_code == 200


def test_nothing_listens_beyond_this_machine_unless_told(tmp_path: Path) -> None:
    store = tmp_path / "guard.db"
    Store(str(store)).prepare()
    address = own_address()
    with running(str(store)) as one:
        assert one.token is None
        assert sent(
            ("127.0.0.1", one.port), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ).startswith(b"HTTP/1.1 200")
        if address is None:
            pytest.skip("this machine has no other address to try")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, one.port), 5)

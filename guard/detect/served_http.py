"""HTTP/1.1 to one address of a served detector: connections are kept, a request has one deadline.

Only looking up a name may take longer, by the operating system's own limits. A verdict is in time
nevertheless, as no stream waits longer for the thread that asks (:mod:`guard.detect.workers`).

Only what an answer of ``guard serve``, of Ray Serve or of a proxy before them needs is read, and
strictly: anything else is a failure. A client library would take two to five times the processor's
time (docs/decisions/served-by-plain-http.md). Redirects are not followed, and proxies of the
environment are not used: the judged text goes to the address that the setting names, or nowhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from guard.errors import DetectorError
from guard.forks import Lock
from guard.served_settings import ServerAddress

_MOST_BYTES = 64 * 1024 * 1024  # of an answer's body
_MOST_HEAD = 64 * 1024
_PART = 64 * 1024
#: A connection that was used so short a time ago is not asked whether the server has closed it.
_SURELY_IDLE_S = 0.5
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d)(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#-'*+.0-9A-Z^-z|~-]+):[ \t]*([^\r\n]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})(?:;[^\r\n]*)?")


class ServedFailure(DetectorError):
    """A served detector gave no answer that can be used; ``str`` quotes nothing that it said."""


class HttpReply(NamedTuple):
    """An answer: its status, its body, and the seconds of ``Retry-After``, 0 without."""

    status: int
    body: bytes
    retry_after: float


class _NoHttp(Exception):
    """What came is no whole answer of HTTP/1.1."""


class _Connection:
    """A connected socket; all that is sent and read ends at ``until``, of ``time.monotonic()``.

    A socket's own time limit begins anew with every read, so a server that sends a byte a second
    would never be late.
    """

    def __init__(self, plain: socket.socket) -> None:
        self.until = 0.0
        self._plain = plain
        self._read = b""
        self._used_at = time.monotonic()

    def ask(self, request: bytes, until: float) -> tuple[HttpReply, bool]:
        """Return the answer to a request, and whether the connection may be used again."""
        self.until = until
        self._set_limit()
        self._plain.sendall(request)
        status, headers = self._head()
        body = self._body(headers)
        retry = headers.get(b"retry-after", b"")
        keep = headers.get(b"connection", b"").lower() != b"close" and not self._read
        self._used_at = time.monotonic()
        seconds = float(retry) if retry.isdigit() and len(retry) < 6 else 0.0
        return HttpReply(status, body, seconds), keep

    def is_idle(self) -> bool:
        """Whether nothing has come since the last answer, not even the connection's end."""
        if time.monotonic() < self._used_at + _SURELY_IDLE_S:
            return True  # not asked: three calls of the system for what is rare
        try:
            self._plain.settimeout(0)
            self._plain.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._plain.close()

    def _head(self) -> tuple[int, Mapping[bytes, bytes]]:
        """Return the status and the headers; a header that comes twice is refused."""
        head = self._until_mark(b"\r\n\r\n", _MOST_HEAD)
        first, *lines = head.split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise _NoHttp
        headers: dict[bytes, bytes] = {}
        for line in lines:
            header = _HEADER.fullmatch(line)
            if header is None:
                raise _NoHttp
            name = header[1].lower()
            if name in headers and name in (b"content-length", b"transfer-encoding"):
                raise _NoHttp
            headers[name] = header[2]
        return int(status[1]), headers

    def _body(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the body, whose length a header or its chunks must tell."""
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise _NoHttp
            return self._chunks()
        if length is None or not length.isdigit() or len(length) > 9:
            raise _NoHttp
        return self._exactly(int(length))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = _CHUNK.fullmatch(self._until_mark(b"\r\n", _MOST_HEAD))
            if size is None:
                raise _NoHttp
            if not (count := int(size[1], 16)):
                break
            body += self._exactly(count)
            if self._exactly(2) != b"\r\n" or len(body) > _MOST_BYTES:
                raise _NoHttp
        while self._until_mark(b"\r\n", _MOST_HEAD):
            pass  # trailers
        return bytes(body)

    def _until_mark(self, mark: bytes, most: int) -> bytes:
        """Return what comes before ``mark``; the mark is read, too."""
        while (place := self._read.find(mark)) < 0:
            if len(self._read) > most:
                raise _NoHttp
            self._read += self._receive(_PART)
        before, self._read = self._read[:place], self._read[place + len(mark) :]
        return before

    def _exactly(self, count: int) -> bytes:
        """Return so many bytes."""
        if count > _MOST_BYTES:
            raise _NoHttp
        parts, left = [self._read], count - len(self._read)
        while left > 0:
            part = self._receive(min(left, _PART))
            parts.append(part)
            left -= len(part)
        whole = b"".join(parts)
        self._read = whole[count:]
        return whole[:count]

    def _receive(self, most: int) -> bytes:
        self._set_limit()
        if not (part := self._plain.recv(most)):
            raise ConnectionResetError
        return part

    def _set_limit(self) -> None:
        self._plain.settimeout(_seconds_until(self.until))


class HttpConnections:
    """The connections to one address. Thread-safe; a forked child makes its own.

    ``headers`` are sent with every request.
    """

    def __init__(
        self,
        address: ServerAddress,
        most: int,
        context: ssl.SSLContext | None,
        headers: Mapping[str, str],
    ) -> None:
        self._address = address
        self._context = context
        self._most = most
        lines = [f"Host: {address.authority}", *(f"{n}: {v}" for n, v in headers.items())]
        self._headers = "".join(f"{line}\r\n" for line in lines)
        self._lock = Lock()
        self._owner = 0
        self._renew_after_fork()

    def _renew_after_fork(self) -> None:
        with self._lock:
            if self._owner == os.getpid():  # another thread was first
                return
            self._idle: deque[_Connection] = deque()
            weakref.finalize(self, _close_all, self._idle).atexit = False
            self._owner = os.getpid()  # last: from now on no other thread waits

    def ask(self, method: str, path: str, body: bytes, until: float, more: str = "") -> HttpReply:
        """Return the answer to a request; ``more`` are further lines of headers, each with its end.

        A kept connection that the server has closed meanwhile is replaced by a new one.

        Raises:
            ServedFailure: there is no whole answer by ``until``.

        """
        if self._owner != os.getpid():
            self._renew_after_fork()
        head = (
            f"{method} {self._address.path}{path} HTTP/1.1\r\n{self._headers}{more}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        request = head.encode("ascii") + body
        try:
            if (kept := self._kept_connection()) is not None:
                try:
                    return self._ask_on(kept, request, until)
                except ConnectionError:
                    pass  # closed while the request was under way
            return self._ask_on(self._connect(until), request, until)
        except TimeoutError:
            raise ServedFailure("no answer in time") from None
        except ssl.SSLCertVerificationError as error:
            # OpenSSL's own words, which name the certificate's fault alone.
            raise ServedFailure(f"its certificate is refused: {error.verify_message}") from None
        except _NoHttp:
            raise ServedFailure("its answer is no HTTP") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServedFailure(f"no connection ({reason})") from None

    def _kept_connection(self) -> _Connection | None:
        while self._idle:
            try:
                kept = self._idle.pop()  # the latest, so that the others grow old
            except IndexError:  # another thread was first
                return None
            if kept.is_idle():
                return kept
            kept.close()
        return None

    def _ask_on(self, connection: _Connection, request: bytes, until: float) -> HttpReply:
        keep = False
        try:
            reply, keep = connection.ask(request, until)
            return reply
        finally:
            if keep and len(self._idle) < self._most:
                self._idle.append(connection)
            else:
                connection.close()

    def _connect(self, until: float) -> _Connection:
        """Return a new connection to the first place of the address that takes it.

        Each place leaves those after it their share of the time. ``getaddrinfo`` takes no limit.
        """
        address, failure = self._address, OSError("no place")
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for before, (family, kind, protocol, _, place) in enumerate(places):
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(_seconds_until(until) / (len(places) - before))
                plain.connect(place)
                plain.settimeout(_seconds_until(until))
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    plain = self._context.wrap_socket(plain, server_hostname=address.host)
                return _Connection(plain)
            except OSError as error:
                plain.close()
                failure = error
        raise failure


def _seconds_until(until: float) -> float:
    """Return the seconds until then, of ``time.monotonic()``; raises TimeoutError if none are."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _close_all(connections: deque[_Connection]) -> None:
    while connections:
        connections.pop().close()

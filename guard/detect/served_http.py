"""HTTP to one address of a served detector: connections are kept, and a request has one deadline.

By ``http.client``, which takes a third of the processor's time of httpx
(docs/decisions/served-by-plain-http.md). Redirects are not followed, and proxies of the environment
are not used: the judged text goes to the address that the setting names, or nowhere.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import time
from collections import deque
from typing import NamedTuple

from guard.errors import DetectorError
from guard.served_settings import ServerAddress

_MOST_BYTES = 64 * 1024 * 1024  # of an answer
_PART = 65_536


class ServedFailure(DetectorError):
    """A served detector gave no answer that can be used; ``str`` quotes nothing that it said."""


class HttpReply(NamedTuple):
    """An answer: its status, its body, and the seconds of ``Retry-After``, 0 without."""

    status: int
    body: bytes
    retry_after: float


class TimedSocket:
    """A connected socket whose reads and writes all end at ``until``, of ``time.monotonic()``.

    A socket's own time limit begins anew with every read, so a server that sends a byte a second
    would never be late. ``http.client`` closes a socket before the answer is read; so ``close``
    does nothing, and ``shut`` closes.
    """

    def __init__(self, plain: socket.socket) -> None:
        self.plain = plain
        self.until = 0.0

    def sendall(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._set_limit()
        self.plain.sendall(data)

    def receive_into(self, buffer: memoryview) -> int:
        """Read what has come into ``buffer``, and wait for something if nothing has."""
        self._set_limit()
        return self.plain.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of the answer."""
        return io.BufferedReader(_TimedReader(self))

    def close(self) -> None:
        """Do nothing."""

    def shut(self) -> None:
        """Close the connection."""
        self.plain.close()

    def is_idle(self) -> bool:
        """Whether nothing has come since the last answer, not even the connection's end."""
        try:
            self.plain.settimeout(0)
            self.plain.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def _set_limit(self) -> None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.plain.settimeout(left)


class _TimedReader(io.RawIOBase):
    def __init__(self, connection: TimedSocket) -> None:
        super().__init__()
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._connection.receive_into(buffer)


class HttpConnections:
    """The connections to one address. Thread-safe; a forked child makes its own."""

    def __init__(self, address: ServerAddress, most: int, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._context = context
        self._most = most
        self._renew_after_fork()

    def _renew_after_fork(self) -> None:
        self._owner = os.getpid()
        self._idle: deque[TimedSocket] = deque()

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], until: float
    ) -> HttpReply:
        """Return the answer to a request.

        A kept connection that the server has closed meanwhile is replaced by a new one.

        Raises:
            ServedFailure: there is no whole answer by ``until``.

        """
        if self._owner != os.getpid():
            self._renew_after_fork()
        try:
            if (kept := self._kept_connection()) is not None:
                try:
                    return self._ask_on(kept, method, path, body, headers, until)
                except ConnectionError:
                    pass  # closed while the request was under way
            return self._ask_on(self._connect(until), method, path, body, headers, until)
        except TimeoutError:
            raise ServedFailure("no answer in time") from None
        except ssl.SSLCertVerificationError as error:
            # Of OpenSSL's own words, which name the certificate's fault alone.
            raise ServedFailure(f"its certificate is refused: {error.verify_message}") from None
        except http.client.HTTPException as error:
            raise ServedFailure(f"no whole answer of HTTP ({type(error).__name__})") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServedFailure(f"no connection ({reason})") from None

    def _kept_connection(self) -> TimedSocket | None:
        while self._idle:
            try:
                kept = self._idle.pop()  # the latest, so that the others grow old
            except IndexError:  # another thread was first
                return None
            if kept.is_idle():
                return kept
            kept.shut()
        return None

    def _ask_on(
        self,
        connection: TimedSocket,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        until: float,
    ) -> HttpReply:
        connection.until = until
        client = http.client.HTTPConnection(self._address.host, self._address.port)
        client.sock = connection
        keep = False
        try:
            client.request(method, self._address.path + path, body, headers)
            response = client.getresponse()
            reply = HttpReply(response.status, _whole_body(response), _retry_seconds(response))
            keep = not response.will_close
            return reply
        finally:
            if keep and len(self._idle) < self._most:
                self._idle.append(connection)
            else:
                connection.shut()

    def _connect(self, until: float) -> TimedSocket:
        """Return a new connection to the first place of the address that takes it."""
        address, failure = self._address, OSError("no place")
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in places:
            plain = socket.socket(family, kind, protocol)
            try:
                if (left := until - time.monotonic()) <= 0:
                    raise TimeoutError
                plain.settimeout(left)
                plain.connect(place)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    plain = self._context.wrap_socket(plain, server_hostname=address.host)
                return TimedSocket(plain)
            except OSError as error:
                plain.close()
                failure = error
        raise failure


def _whole_body(response: http.client.HTTPResponse) -> bytes:
    if response.length is not None:
        if response.length > _MOST_BYTES:
            raise http.client.HTTPException
        return response.read()  # raises IncompleteRead; with a number of bytes it would not
    body = bytearray()
    while part := response.read(_PART):
        body += part
        if len(body) > _MOST_BYTES:
            raise http.client.HTTPException
    return bytes(body)


def _retry_seconds(response: http.client.HTTPResponse) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 6 else 0.0

"""What listens for requests: a socket, the token beyond this machine, and the known host names.

The dashboard and the served detector share it. A request's ``Host`` must be known, which stops DNS
rebinding; the token is never part of a URL.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from guard.errors import UsageError

MIN_TOKEN = 16
"""Characters of a token, at least."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_TOKEN = re.compile(r"[\x21-\x7e]+")


class ListeningUrl(NamedTuple):
    """The URL that is listened at, and its token if one was generated."""

    url: str
    generated_token: str | None


class ListeningPlace:
    """A socket that listens; ``token`` is what a request needs, None for none.

    ``hosts`` are the names and addresses to answer to, beside those of the loopback.
    """

    def __init__(
        self, listener: socket.socket, host: str, token: str | None, allowed: Sequence[str]
    ) -> None:
        self.listener = listener
        address, self.port = listener.getsockname()[:2]
        needs_token = token is None and not all(map(is_loopback, (address, host, *allowed)))
        generated = secrets.token_urlsafe(32) if needs_token else None
        served_at = () if ipaddress.ip_address(address).is_unspecified else (host, address)
        self.token = token or generated
        self.hosts: tuple[str, ...] = (*served_at, *allowed)
        # 0.0.0.0 and :: are no addresses to visit.
        name = address if served_at else "localhost"
        authority = f"[{name}]" if ":" in name else name
        self.shown = ListeningUrl(f"http://{authority}:{self.port}/", generated)


@contextmanager
def listening_place(
    who: str, host: str, port: int, token: str | None, allowed: Sequence[str]
) -> Iterator[ListeningPlace]:
    """Listen at the first address of ``host`` within the block; ``who`` is named in errors.

    A token is needed if the address is not a loopback address, or a name in ``allowed``, further
    host names to answer to, is not: a proxy may pass requests from other machines on. If none is
    given, one is generated. Raises UsageError if the address or port cannot be listened on.
    """
    with _listening_socket(who, host, port) as listener:
        yield ListeningPlace(listener, host, token, allowed)


def checked_token(token: str, name: str = "--token") -> str:
    """Return ``token``; raises UsageError if it is too short or cannot stand in a header.

    ``name`` is the option or the variable that has it.
    """
    if len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token):
        raise UsageError(f"{name} takes at least {MIN_TOKEN} characters: ASCII, without spaces.")
    return token


def checked_host(host: str, name: str = "--allow-host") -> str:
    """Return ``host``; raises UsageError if it is no host name or address.

    ``name`` is the option or the variable that has it.
    """
    match = _HOST.fullmatch(host.lower())
    if not is_address(host) and (match is None or match["name"] != host.lower()):
        raise UsageError(
            f"{name} takes names such as guard.example.org, without a port, got {host[:80]!r}."
        )
    return host


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a name or an address is always this machine's own."""
    name = canonical_host(host)
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


@lru_cache(maxsize=256)
def is_known_host(header: str, server: str, hosts: tuple[str, ...]) -> bool:
    """Whether a ``Host`` header names this server, which listens on the address ``server``.

    A client's requests all have the same one.
    """
    match = _HOST.fullmatch(header.lower())
    if match is None:
        return False
    name = canonical_host(match["name"])
    known = {canonical_host(host) for host in (*_LOOPBACK, *hosts)}
    return name in known or (is_address(server) and name == canonical_host(server))


def bearer_token(values: Sequence[str]) -> str | None:
    """Return the token in the ``Authorization`` headers of a request; None without exactly one."""
    kind, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() if kind.lower() == "bearer" else None


def same_secret(sent: str | None, wanted: str) -> bool:
    """Compare in constant time, against timing attacks."""
    return sent is not None and hmac.compare_digest(sent.encode(), wanted.encode())


def canonical_host(host: str) -> str:
    """Return a host in lower case without brackets, an address in its canonical form."""
    name = host.lower().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _listening_socket(who: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of ``host``."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--host: {host[:200]!r} is no address of this machine; give one of its own."
        ) from None
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} is in use; give another with --port, or stop what listens there"
        elif error.errno == errno.EACCES:
            why = f"this user may not listen on port {port}; give one above 1023 with --port"
        else:
            why = f"{host} is no address of this machine; give one of its own with --host"
        raise UsageError(f"{who} cannot listen: {why}.") from None
    return listener

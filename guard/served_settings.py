"""The setting ``served``: how detectors behind ``http://HOST:PORT`` are asked for scores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from guard.errors import ConfigError
from guard.judge_settings import checked_count, checked_seconds

#: What the address of a served detector begins with.
SCHEMES = ("http://", "https://")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HASH = re.compile(r"[0-9a-f]{8,64}")
_MOST_SHOWN = 80  # characters of a value that a message quotes


@dataclass(frozen=True, slots=True)
class ServedSettings:
    """Limits of a call, the token, and what the server must have.

    ``timeout_s`` is in seconds, for one verdict, inside the policy's ``timeout_ms``;
    ``concurrency`` the most calls at once. ``weights`` is the hash of the weights, or its first 8
    digits or more; ``index_version`` the version of the bias index. None: whatever the server has
    when the guard starts.
    """

    timeout_s: float = 5.0
    concurrency: int = 16
    token: str | None = field(default=None, repr=False)
    weights: str | None = None
    index_version: str | None = None


class ServerAddress:
    """One address in its parts; ``path`` is what stands before ``/v1``, or empty."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            name, port = parts.hostname, parts.port
        except ValueError:
            name, port, parts = None, None, urlsplit("")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                "The address of a served detector holds no user or password; set served.token."
            )
        plain = not (parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", url))
        if not name or parts.scheme not in ("http", "https") or not plain or port == 0:
            raise ConfigError(
                f"{url[:_MOST_SHOWN]!r} is no address of a served detector, such as "
                "http://judge-1:8471 or https://judge.example.org; several have commas between."
            )
        self.secure = parts.scheme == "https"
        self.host = name
        self.port = port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")

    @property
    def authority(self) -> str:
        """Host and port, as a request's ``Host`` names them."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __str__(self) -> str:
        return f"http{'s' if self.secure else ''}://{self.authority}{self.path}"


def read_addresses(name: str) -> list[ServerAddress]:
    """Return the addresses in a detector's name; raises ConfigError if one is none."""
    return [ServerAddress(part.strip()) for part in name.split(",")]


def checked_settings(values: object, where: str) -> dict[str, Any]:
    """Return the values of the setting ``served`` in their own types.

    Values may be texts, as in a variable.

    Raises:
        ConfigError: naming ``where`` and the key, if one is unknown or out of range.

    """
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{where}: served takes a table of settings ({', '.join(_READ)}), got "
            f"{type(values).__name__}."
        )
    for key in values:
        if key not in _READ:
            raise ConfigError(f"{where}: unknown key served.{key}; known are {', '.join(_READ)}.")
    return {key: _READ[key](value, f"{where}: served.{key}") for key, value in values.items()}


def printable_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` as they may be printed: without the token."""
    return {key: "set" if key == "token" else value for key, value in values.items()}


def _checked_token(value: Any, where: str) -> str:
    if isinstance(value, str) and _TOKEN.fullmatch(value):
        return value
    # The value is not quoted: it may be the token with a space too many.
    raise ConfigError(f"{where} takes the token that guard serve printed: ASCII, without spaces.")


def _checked_hash(value: Any, where: str) -> str:
    if isinstance(value, str) and _HASH.fullmatch(value.lower()):
        return value.lower()
    raise ConfigError(
        f"{where} takes the hash that guard serve prints, or its first 8 digits or more, got "
        f"{str(value)[:_MOST_SHOWN]!r}."
    )


def _checked_version(value: Any, where: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(f"{where} takes the version of a bias index, got {value!r}.")


_READ: Mapping[str, Any] = {
    "timeout_s": checked_seconds,
    "concurrency": checked_count,
    "token": _checked_token,
    "weights": _checked_hash,
    "index_version": _checked_version,
}

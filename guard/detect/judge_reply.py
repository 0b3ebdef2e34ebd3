"""A judge's reply to one request, and a file of recorded replies."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from guard.detect.instruction import NO, YES
from guard.errors import ConfigError
from guard.forks import Lock
from guard.judge_settings import TRANSPORT
from guard.places import regular_bytes

Problem = Literal["", "empty", "cut short", "content filter", "refusal", "tool call"]
"""Why a reply has no answer that could be read; "" if it may have one."""

_log = logging.getLogger("guard")
_KIND = "guard judge recording"
_FORMAT = 1
_LEAST = 0.5  # of the probability that the first token is YES or NO; below, it begins other text


class JudgeReply(NamedTuple):
    """What a model replied to one request.

    ``first`` are the log-probabilities of the likeliest first tokens, empty where the provider
    gives none. ``tokens`` are those of the prompt and of the answer, None where they were not
    counted.
    """

    text: str
    problem: Problem = ""
    first: Mapping[str, float] = {}
    tokens: tuple[int, int] | None = None

    def probability(self) -> float | None:
        """Return p(yes) / (p(yes) + p(no)) of the first token; None where that is not known.

        Spellings of a word count together: other case, and white space around it.
        """
        yes, no = (
            math.fsum(
                math.exp(value)
                for token, value in self.first.items()
                if token.strip().casefold() == word.casefold()
            )
            for word in (YES, NO)
        )
        return yes / (yes + no) if yes + no >= _LEAST else None


def request_key(
    model: str, messages: Sequence[Mapping[str, str]], params: Mapping[str, Any]
) -> str:
    """Return the SHA-256 of what a request asks, in hexadecimal digits.

    Where it is sent and as whom (address, key, headers, time limit) is no part of it.
    """
    asked = {name: value for name, value in params.items() if name not in TRANSPORT}
    text = json.dumps([model, list(messages), asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class JudgeRecording:
    """Replies by the key of their request, in a file of JSON lines; thread-safe.

    The first line names the model. With ``adds`` the file is made if it is not there, and each
    reply is one write of a whole line at its end: after a kill at most the last line is cut, which
    reading leaves out. Requests are not stored, but replies quote what they find in the text.

    Raises:
        ConfigError: the file cannot be read or written, is no recording, or is of another model.

    """

    def __init__(self, path: Path, model: str, *, adds: bool) -> None:
        self.path = path
        self._cut = False  # whether the last write ended within a line
        self._replies: dict[str, JudgeReply] = {}
        self._lock = Lock()
        try:
            data = b"" if adds and not path.exists() else regular_bytes(path)
        except OSError as error:
            raise ConfigError(f"judge: {path} cannot be read ({error.strerror}).") from None
        lines = list(_whole_objects(data))
        if data:
            self._check_head(lines[0] if lines else {}, model)
        for line in lines[1:]:
            if line.get("kind") == _KIND:  # two processes began the file at the same time
                continue
            if (reply := _reply_in(line)) is not None:
                self._replies[reply[0]] = reply[1]
        if adds and not data:
            self._append_line({"kind": _KIND, "format": _FORMAT, "model": model})
        self._cut = bool(data) and not data.endswith(b"\n")  # by a kill

    def _check_head(self, head: Mapping[str, Any], model: str) -> None:
        if (head.get("kind"), head.get("format")) != (_KIND, _FORMAT):
            raise ConfigError(f"judge: {self.path} is no recording of a judge; name another file.")
        if head.get("model") != model:
            raise ConfigError(
                f"judge: {self.path} is a recording of {head.get('model')!r}, not of {model!r}; "
                "name another file."
            )

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: str) -> JudgeReply | None:
        """Return the reply to the request with this key; None if there is none."""
        return self._replies.get(key)

    def add(self, key: str, reply: JudgeReply) -> None:
        """Store a reply; an error in writing it is logged, and judging goes on."""
        with self._lock:
            self._replies[key] = reply
        line: dict[str, Any] = {"key": key, "text": reply.text, "problem": reply.problem}
        line |= {"first": dict(reply.first)} if reply.first else {}
        line |= {} if reply.tokens is None else {"tokens": reply.tokens}
        try:
            self._append_line(line)
        except ConfigError as error:
            _log.error("%s", error)

    def _append_line(self, line: Mapping[str, Any]) -> None:
        self._write_bytes(json.dumps(line).encode() + b"\n")

    def _write_bytes(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write at the end of the file: other threads and processes may add, too.
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                with self._lock:
                    whole = b"\n" + data if self._cut else data
                    self._cut = os.write(file, whole) < len(whole)  # on a full disk
            finally:
                os.close(file)
        except OSError as error:
            raise ConfigError(f"judge: {self.path} cannot be written ({error.strerror}).") from None


def _whole_objects(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of whole lines; other lines are left out with a warning."""
    *lines, cut = data.split(b"\n")
    bad = bool(cut)
    for line in lines:
        try:
            parsed = json.loads(line) if line else None
        except (ValueError, RecursionError):
            parsed, bad = None, True
        if isinstance(parsed, dict):
            yield parsed
    if bad:
        _log.warning("judge: a line of the recording is cut or damaged and was left out")


def _reply_in(line: Mapping[str, Any]) -> tuple[str, JudgeReply] | None:
    try:
        tokens, problem = line.get("tokens"), line["problem"]
        first = {str(token): float(value) for token, value in line.get("first", {}).items()}
        # nan fails the comparison, too.
        if problem not in get_args(Problem) or not all(p < 1 for p in first.values()):
            raise ValueError("no reply that guard wrote")
        reply = JudgeReply(
            str(line["text"]),
            problem,
            first,
            None if tokens is None else (int(tokens[0]), int(tokens[1])),
        )
        return str(line["key"]), reply
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        _log.warning("judge: a line of the recording is cut or damaged and was left out")
        return None

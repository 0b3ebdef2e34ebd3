"""The rows of a run's file (run_file.sql): their statements, checksums, and what they record."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from guard.audit.calls import Call, Guarded, Line, Piece, Reply, Slot, Usage
from guard.audit.header import Header
from guard.suites import TextScore

REQUEST = "key, item, sample, turn, role"
REPLY = (
    "pieces, finish, first_tokens, scores, prompt_tokens, completion_tokens, cost, seconds, "
    "attempts, error, kind, status"
)
READING = "key, reading, text, types, score, own, kept, stopped, seconds"
CALL = f"{REQUEST}, {REPLY}"
Row = tuple[Any, ...]


def _insert_statement(table: str, columns: str, unique: str = "", replaced: str = "") -> str:
    """Return the statement that adds a row; an existing one is changed only if ``replaced``."""
    names = columns.split(", ")
    # Texts are bytes: half a surrogate pair, which a model may answer, has no UTF-8.
    marks = ("CAST(? AS TEXT)" if name == "text" else "?" for name in names)
    statement = f"INTO {table} ({columns}) VALUES ({', '.join(marks)})"
    if not unique:
        return f"INSERT OR IGNORE {statement}"
    changes = ", ".join(f"{name} = excluded.{name}" for name in names)
    return f"INSERT {statement} ON CONFLICT ({unique}) DO UPDATE SET {changes} WHERE {replaced}"


# What follows a failed call replaces it; nothing replaces an answer.
ADD_REQUEST = _insert_statement(
    *("request", f"suite, {REQUEST}", "suite, key"),
    "NOT EXISTS (SELECT 1 FROM reply WHERE reply.id = request.id AND error IS NULL)",
)
ADD_REPLY = _insert_statement(
    "reply", f"id, {REPLY}, sum", "id", "reply.error IS NOT NULL"
).replace("(?", "((SELECT id FROM request WHERE suite = ? AND key = ?)", 1)
ADD_READING = _insert_statement("reading", f"suite, {READING}, sum")
PUT_HEADER = "INSERT OR REPLACE INTO header (suite, model, key, state, sum) VALUES (?, ?, ?, ?, ?)"
REMOVE_SUITE = (
    "DELETE FROM reply WHERE id IN (SELECT id FROM request WHERE suite = ?)",
    "DELETE FROM request WHERE suite = ?",
    "DELETE FROM reading WHERE suite = ?",
)
REMOVE_REQUEST = (
    "DELETE FROM reply WHERE id IN (SELECT id FROM request WHERE suite = ? AND key = ?)",
    "DELETE FROM request WHERE suite = ? AND key = ?",
)


def header_row(header: Header, state: int) -> Row:
    """Return the row of a suite; the meaning of ``state`` is the file's."""
    # A model's name may come from a file of somebody's, and half a surrogate pair has no UTF-8.
    model = header.model.encode("utf-8", "backslashreplace").decode()
    key = _json_of(header.line())
    return header.suite, model, key, state, row_checksum("", (header.suite, model, key))


def call_row(call: Call) -> Row:
    """Return the values of :data:`CALL`."""
    row = (call.key, *call.slot, call.by)
    reply, seconds = call.reply, round(call.latency_s, 4)
    if reply is None:
        failed = (seconds, call.attempts, call.error, call.kind or None, call.status)
        return (*row, None, None, None, None, None, None, None, *failed)
    pieces = [{"r": piece.text} if piece.reasoning else piece.text for piece in reply.pieces]
    scores = [(score.logprob, score.tokens) for score in reply.scores]
    usage = reply.usage
    return (
        *row,
        _json_of(pieces),
        reply.finish_reason,
        _json_of(dict(reply.first_tokens)) if reply.first_tokens else None,
        _json_of(scores) if scores else None,
        int(usage.prompt_tokens),
        int(usage.completion_tokens),
        _number_of(usage.cost),
        *(seconds, call.attempts, None, None, None),
    )


def call_of_row(row: Row) -> Call:
    """Return the call with the values of :data:`CALL`."""
    key, item, sample, turn, role, pieces, finish, first_tokens, scores, *rest = row
    prompt_tokens, completion_tokens, cost, seconds, attempts, error, kind, status = rest
    reply = None
    if error is None:
        reply = Reply(
            tuple(
                Piece(piece["r"], True) if isinstance(piece, dict) else Piece(piece)
                for piece in json.loads(pieces)
            ),
            finish,
            json.loads(first_tokens) if first_tokens else {},
            tuple(TextScore(*score) for score in json.loads(scores)) if scores else (),
            Usage(prompt_tokens, completion_tokens, math.nan if cost is None else cost),
        )
    slot = Slot(item, sample, turn)
    return Call(key, slot, reply, error or "", attempts, seconds, role, kind or "", status)


def reading_row(reading: Guarded) -> Row:
    """Return the values of :data:`READING`."""
    score = _number_of(round(reading.score, 4))
    own, kept, stopped = int(reading.own), float(reading.kept), int(reading.stopped)
    about = (reading.text, _json_of(reading.types), score, own, kept, stopped)
    return (reading.key, reading.reading, *about, _number_of(reading.seconds))


def reading_of_row(row: Row) -> Guarded:
    """Return the reading with the values of :data:`READING`."""
    key, reading, text, types, score, own, kept, stopped, seconds = row
    score, seconds = (math.nan if value is None else value for value in (score, seconds))
    types = tuple(json.loads(types))
    return Guarded(key, reading, text, types, score, own, kept, bool(stopped), seconds)


def _number_of(value: float) -> float | None:
    """Return a number that may be nan, for which SQL has NULL."""
    return None if math.isnan(value) else float(value)


def _json_of(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair has no UTF-8, so it is escaped.
    return text if _is_utf8(text) else json.dumps(value, separators=(",", ":"))


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def row_checksum(seed: str, values: Sequence[object]) -> str:
    """Return the checksum of a row; ``seed`` is that of its suite's header.

    Bytes, which an edited row may have, make a checksum, too, that fits none.
    """
    return hashlib.sha256(f"{seed}{json.dumps(values, default=repr)}".encode()).hexdigest()[:12]


def encoded(line: Line) -> bytes:
    """Return the text of a header or record, in UTF-8."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")

"""The tables of a store, and the migrations of older ones.

A response has a row from its first decision on; until it ends, its ``outcome`` is ``running`` and
its counts are 0. A decision has a row whose key is its response and its place in the trail, so
writing a batch twice changes nothing.

A store also keeps the history of audits: a row for each audit of a suite, and one for each of its
axes. These rows are never changed or deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    text,
)

VERSION = 5
"""The version of the tables below."""

metadata = MetaData()

about = Table(
    "guard_store",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", Text, nullable=False),
    comment="schema: the version of the tables; key: what texts are hashed with; journal: set "
    "while SQLite's journal may hold deleted rows.",
)

settings = Table(
    "guard_settings",
    metadata,
    Column("hash", String(16), primary_key=True),
    Column("policy", JSON, nullable=False),
    comment="The policies that guarded responses.",
)


_COUNTS = (
    *("judged", "passed", "found", "mitigated", "unjudged"),
    *("rewrites", "characters_seen", "characters_withheld"),
)
responses = Table(
    "guard_responses",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("time", Double, nullable=False, comment="of the first decision, seconds since 1970"),
    Column("door", String(32), nullable=False),
    Column("model", String(256)),
    Column("request_id", String(256)),
    Column("settings", String(16), nullable=False),
    Column("detector", String(256)),
    Column("index_version", String(256)),
    Column("labels", JSON, nullable=False),
    Column("outcome", String(16), nullable=False),
    *(Column(name, Integer, nullable=False, server_default="0") for name in _COUNTS),
    Column("judging_ms", Double, nullable=False, server_default="0"),
    Index("guard_responses_time", "time"),
    Index("guard_responses_request", "request_id"),
)

events = Table(
    "guard_events",
    metadata,
    Column("response_id", String(32), primary_key=True),
    Column("number", Integer, primary_key=True, comment="place in the trail, from 0"),
    Column("time", Double, nullable=False, comment="seconds since 1970"),
    Column("action", String(16), nullable=False),
    Column("unjudged", String(16), comment="why the segment was not judged"),
    Column("bias_type", String(16), comment="of a biased segment"),
    Column("group_name", String(256)),
    Column("attribute_name", String(256)),
    Column("score", Double),
    Column("threshold", Double),
    Column(
        "counted",
        Boolean,
        nullable=False,
        comment="false for a finding that an earlier segment has",
    ),
    Column("channel", String(16), nullable=False),
    Column("choice", Integer, nullable=False),
    Column("tool", Integer, nullable=False),
    Column("start", Integer, nullable=False, comment="characters, in the channel's text"),
    Column("end", Integer, nullable=False),
    Column("judging_ms", Double, nullable=False),
    Column("text", Text, comment="in the form that keep_text allows"),
    Column("text_share", Double, comment="probability with which such a text is kept"),
    Column(
        "index_references",
        JSON(none_as_null=True),
        comment="of a biased segment: similar statements of the index, by hash",
    ),
    sqlite_with_rowid=False,
)
Index(
    "guard_events_found",
    events.c.response_id,
    events.c.bias_type,
    events.c.action,
    events.c.counted,
    sqlite_where=events.c.bias_type.is_not(None),
    postgresql_where=events.c.bias_type.is_not(None),
)

drops = Table(
    "guard_drops",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("time", Double, nullable=False, comment="of the report, seconds since 1970"),
    Column("process", String(256), nullable=False, comment="host and process id"),
    Column("events", Integer, nullable=False),
    Column("reason", String(64), nullable=False),
    Index("guard_drops_time", "time"),
    comment="Events that a process dropped, reported once the store could be written again.",
)

audits = Table(
    "guard_audits",
    metadata,
    Column("id", String(64), primary_key=True, comment="hash of what was asked and answered"),
    Column("time", Double, nullable=False, comment="of the run, seconds since 1970"),
    Column("added", Double, nullable=False, comment="to this table, seconds since 1970"),
    Column("suite", String(256), nullable=False),
    Column("model", String(256), nullable=False),
    Column("release", String(256)),
    Column("source", String(256), nullable=False, comment="name of the run"),
    Column("guard", String(32), nullable=False, comment="version that added it"),
    Column("key", JSON, nullable=False, comment="what two audits must share to be compared"),
    Column("items", Integer, nullable=False),
    Index("guard_audits_time", "time"),
    comment="Finished audits of one suite each.",
)

audit_axes = Table(
    "guard_audit_axes",
    metadata,
    Column("audit_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, comment="place in the audit, from 0"),
    Column("name", Text, nullable=False, comment="suite/arm/measure/label=value/..."),
    Column("arm", String(16), nullable=False),
    Column("measure", String(256), nullable=False),
    Column("labels", JSON, nullable=False),
    Column("value", Double, comment="null where nothing could be read"),
    Column("low", Double, comment="of the 95 % interval; null where there is none"),
    Column("high", Double),
    Column("n", Double, nullable=False),
    Column("unit", String(16), nullable=False),
    Column("coverage", Double, comment="share of readable answers of the arm"),
    Column("ideal", Double, nullable=False, comment="the value of a fair model"),
    Column("above", Boolean, nullable=False, comment="values below the ideal are as good as it"),
    sqlite_with_rowid=False,
)


def _keep_audits(connection: Connection) -> None:
    metadata.create_all(connection, tables=[audits, audit_axes])


draws = Table(
    "guard_review_draws",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("time", Double, nullable=False, comment="when it was drawn, seconds since 1970"),
    Column(
        "since", Double, nullable=False, comment="decisions from then until: the period drawn from"
    ),
    Column("until", Double, nullable=False),
    Column("size", Integer, nullable=False, comment="items drawn"),
    Column("seed", Integer, nullable=False),
    Column("unread", Integer, nullable=False, comment="segments without a kept text"),
)

items = Table(
    "guard_review_items",
    metadata,
    Column("draw_id", String(32), primary_key=True),
    Column("response_id", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("position", Integer, nullable=False, comment="in the queue, strata interleaved"),
    Column("stratum", String(512), nullable=False),
    Column("stratum_size", Integer, nullable=False, comment="segments in the stratum"),
    Column("stratum_drawn", Integer, nullable=False),
    Column("probability", Double, nullable=False, comment="of being drawn"),
    Column("weight", Double, nullable=False, comment="its inverse"),
    Index("guard_review_items_event", "response_id", "number"),
)

marks = Table(
    "guard_review_marks",
    metadata,
    Column("id", String(32), primary_key=True, comment="sorts by time"),
    Column("response_id", String(32), nullable=False),
    Column("number", Integer, nullable=False),
    Column("reviewer", String(256), nullable=False),
    Column("time", Double, nullable=False, comment="seconds since 1970"),
    Column("verdict", String(16), nullable=False, comment="on the decision: right, wrong, unclear"),
    Column("bias_type", String(16), comment="given by the reviewer"),
    Column("group_name", String(256)),
    Column("attribute_name", String(256)),
    Index("guard_review_marks_event", "response_id", "number"),
    comment="A reviewer's last mark of a segment replaces the earlier ones.",
)


def _add_reviews(connection: Connection) -> None:
    """Create the review tables; older stores kept every readable text, so its share is 1."""
    for table in (draws, items, marks):
        table.create(connection)
    connection.execute(text("ALTER TABLE guard_events ADD COLUMN text_share DOUBLE PRECISION"))
    readable = "text IS NOT NULL AND text NOT LIKE 'hmac:%'"
    connection.execute(text(f"UPDATE guard_events SET text_share = 1 WHERE {readable}"))


def _add_references(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE guard_events ADD COLUMN index_references JSON"))


forgotten = Table(
    "guard_forgotten",
    metadata,
    Column("request", String(32), primary_key=True, comment="hash of the request's id"),
    Column("time", Double, nullable=False, comment="when it was forgotten, seconds since 1970"),
    comment="Requests of which nothing more is written.",
)


def _remember_forgotten(connection: Connection) -> None:
    forgotten.create(connection)


#: Migrations: the n-th, from 0, leads from version n + 1 to n + 2. A new store needs none.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _keep_audits,
    _add_reviews,
    _add_references,
    _remember_forgotten,
)


def version_of(connection: Connection) -> int | None:
    """Return the version of a store's tables, None if it has none."""
    if not inspect(connection).has_table(about.name):
        return None
    value = connection.scalar(select(about.c.value).where(about.c.name == "schema"))
    return int(value) if value is not None and value.isdecimal() else None


def bring_up(connection: Connection) -> None:
    """Create the tables, or migrate older ones; newer ones stay as they are."""
    version = version_of(connection)
    if version is None:
        metadata.create_all(connection)
        rows = {"schema": str(VERSION), "key": secrets.token_hex(32)}
        connection.execute(about.insert(), [{"name": n, "value": v} for n, v in rows.items()])
    elif version < VERSION:
        for migrate in MIGRATIONS[version - 1 :]:
            migrate(connection)
        stamp = about.update().where(about.c.name == "schema")
        connection.execute(stamp.values(value=str(VERSION)))

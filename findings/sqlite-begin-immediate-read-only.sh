#!/usr/bin/env bash
# On a read-only connection SQLite accepts BEGIN IMMEDIATE and BEGIN EXCLUSIVE, but starts a read
# transaction. It takes no write lock and raises no error; only the first write is refused.
#
# Package: apsw 3.54.1.0, which contains SQLite 3.54.1. SQLite 3.51.1 and 3.40.1 do the same.
# Seen: with a write-ahead log another connection commits while the "exclusive" transaction is open.
# The state of the transaction (sqlite3_txn_state) is "read". So BEGIN IMMEDIATE does not show
# whether a database can be written, and does not keep other writers out.
# Output:
#   read-only, BEGIN IMMEDIATE: begun, state read; other writer: committed; own write: ReadOnlyError
#   read-only, BEGIN EXCLUSIVE: begun, state read; other writer: committed; own write: ReadOnlyError
#   writable, BEGIN IMMEDIATE: begun, state write; other writer: BusyError; own write: done
# guard: writes a row in the transaction in which it opens a store of events, to see whether the
# store can be written (Store.open in guard/watch/store.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="read-only, BEGIN IMMEDIATE: begun, state read; other writer: committed; own write: ReadOnlyError
read-only, BEGIN EXCLUSIVE: begun, state read; other writer: committed; own write: ReadOnlyError
writable, BEGIN IMMEDIATE: begun, state write; other writer: BusyError; own write: done"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq apsw==3.54.1.0
cat >"$work/run.py" <<'PY'
import sys

import apsw

path = sys.argv[1]
STATES = {0: "none", 1: "read", 2: "write"}
WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def tried(connection, good):
    try:
        connection.execute("INSERT INTO t VALUES (1)")
        return good
    except apsw.Error as error:
        return type(error).__name__


other = apsw.Connection(path)
other.execute("PRAGMA journal_mode = WAL").fetchall()
other.execute("CREATE TABLE t (x)")
for name, flags, begin in (
    ("read-only", apsw.SQLITE_OPEN_READONLY, "BEGIN IMMEDIATE"),
    ("read-only", apsw.SQLITE_OPEN_READONLY, "BEGIN EXCLUSIVE"),
    ("writable", WRITE, "BEGIN IMMEDIATE"),
):
    own = apsw.Connection(path, flags=flags)
    own.execute(begin)
    state = STATES[own.txn_state("main")]
    print(f"{name}, {begin}: begun, state {state}; other writer: {tried(other, 'committed')}; "
          f"own write: {tried(own, 'done')}")
    own.close(True)
PY
seen=$(env -i HOME="$work" PATH="$PATH" \
    timeout 120 "$work/venv/bin/python" "$work/run.py" "$work/a.db" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: SQLite treats BEGIN IMMEDIATE or EXCLUSIVE of a read-only connection otherwise." >&2
    exit 1
fi

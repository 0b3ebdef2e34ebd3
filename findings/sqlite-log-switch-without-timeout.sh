#!/usr/bin/env bash
# PRAGMA journal_mode = WAL fails at once while another connection holds the write lock of a file
# that has no write-ahead log yet, whatever the busy timeout. It waits, as stated, for a reader.
#
# Package: apsw 3.54.1.0, which contains SQLite 3.54.1. SQLite 3.40.1 does the same.
# Seen: with a busy timeout of 2 s the switch waits 2 s for a reader and 0 s for a writer;
# BEGIN IMMEDIATE waits 2 s for the same writer. So of several processes that open a new file at
# once and switch it, as most set-ups do, some fail with "database is locked" within a millisecond.
# Output:
#   against a reader: switch waited 2 s, BusyError
#   against a writer: switch waited 0 s, BusyError
#   against a writer: BEGIN IMMEDIATE waited 2 s, BusyError
# guard: tries the switch again for as long as a statement waits (guard/watch/engines.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="against a reader: switch waited 2 s, BusyError
against a writer: switch waited 0 s, BusyError
against a writer: BEGIN IMMEDIATE waited 2 s, BusyError"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq apsw==3.54.1.0
cat >"$work/run.py" <<'PY'
import sys
import time

import apsw

TIMEOUT_MS = 2000
path = sys.argv[1]


def waited(name, statement):
    own = apsw.Connection(path)
    own.set_busy_timeout(TIMEOUT_MS)
    began = time.monotonic()
    try:
        own.execute(statement).fetchall()
        end = "done"
    except apsw.Error as error:
        end = type(error).__name__
    print(f"{name} waited {round(time.monotonic() - began)} s, {end}")
    own.close(True)


other = apsw.Connection(path)
other.execute("CREATE TABLE t (x)")
other.execute("INSERT INTO t VALUES (1)")
other.execute("BEGIN")
other.execute("SELECT * FROM t").fetchall()
waited("against a reader: switch", "PRAGMA journal_mode = WAL")
other.execute("ROLLBACK")
other.execute("BEGIN IMMEDIATE")
waited("against a writer: switch", "PRAGMA journal_mode = WAL")
waited("against a writer: BEGIN IMMEDIATE", "BEGIN IMMEDIATE")
PY
seen=$(env -i HOME="$work" PATH="$PATH" \
    timeout 120 "$work/venv/bin/python" "$work/run.py" "$work/a.db" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: SQLite waits otherwise before it switches a file to a write-ahead log." >&2
    exit 1
fi

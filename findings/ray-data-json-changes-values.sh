#!/usr/bin/env bash
# Ray Data reads and writes a file of JSON lines, with nothing in between, as another file: numbers
# keep ten digits, and a column of texts that all look like dates becomes numbers.
#
# Package: ray[data] 2.60.0, with pandas 3.1.1 and pyarrow 26.0.1.
# Seen: read_json takes texts such as "2024-01-05" for timestamps, and write_json goes through pandas,
# which writes ten decimals and timestamps as milliseconds since 1970. No warning is given.
# Output:
#   in:  {"id": 1, "score": 0.12345678901234566, "when": "2024-01-05"}
#   in:  {"id": 2, "score": 0.1, "when": "2024-02-29"}
#   out: {"id":1,"score":0.123456789,"when":1704412800000}
#   out: {"id":2,"score":0.1,"when":1709164800000}
# guard: reads files by its own code in Ray's actors, and writes the rows' own bytes
# (guard/bulk/actors.py, docs/bulk-judging.md).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected='in:  {"id": 1, "score": 0.12345678901234566, "when": "2024-01-05"}
in:  {"id": 2, "score": 0.1, "when": "2024-02-29"}
out: {"id":1,"score":0.123456789,"when":1704412800000}
out: {"id":2,"score":0.1,"when":1709164800000}'

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq 'ray[data]==2.60.0' pandas==3.1.1 pyarrow==26.0.1
cat >"$work/run.py" <<'PY'
import json
import logging
import pathlib
import sys

import ray

work = pathlib.Path(sys.argv[1])
rows = [
    {"id": 1, "score": 0.12345678901234566, "when": "2024-01-05"},
    {"id": 2, "score": 0.1, "when": "2024-02-29"},
]
(work / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
ray.data.DataContext.get_current().enable_progress_bars = False
logging.getLogger("ray.data").setLevel(logging.ERROR)
ray.data.read_json(str(work / "in.jsonl")).write_json(str(work / "out"))
for line in (work / "in.jsonl").read_text().splitlines():
    print("in: ", line)
for part in sorted((work / "out").glob("*.json")):
    for line in part.read_text().splitlines():
        print("out:", line)
PY
seen=$(env -i HOME="$work" PATH="$PATH" RAY_USAGE_STATS_ENABLED=0 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" "$work" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: Ray Data no longer writes JSON lines with other values than it read." >&2
    exit 1
fi

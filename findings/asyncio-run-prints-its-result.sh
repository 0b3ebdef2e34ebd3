#!/usr/bin/env bash
# `asyncio.run` calls `repr` on what its coroutine returned, twice, and drops the text: where that is a
# dataclass with NumPy arrays, the end of the loop costs more than the work.
#
# Package: CPython 3.11.7 and 3.12.1 (3.10.13 and 3.13.0 do not); numpy 2.4.6.
# Seen: to restore the handler of SIGINT, the runner asks `signal.getsignal`, whose lookup in an enum
# fails for a Python function with a message that holds its repr: a partial, its task, the task's result.
# Output:
#   in the main thread: printed 2 times
#   in another thread:  printed 0 times
# guard: its results print as a line (guard/audit/score.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="in the main thread: printed 2 times
in another thread:  printed 0 times"

python3 -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' || {
    echo "It needs Python 3.11 or 3.12; 3.10 and 3.13 print nothing." >&2
    exit 2
}
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq numpy==2.4.6
cat >"$work/run.py" <<'PY'
import asyncio
import threading
from dataclasses import dataclass

import numpy as np

printed = []


class Sums(np.ndarray):
    def __repr__(self):
        printed.append(threading.current_thread().name)
        return super().__repr__()


@dataclass
class Result:
    sums: Sums


async def work():
    return Result(np.zeros(3).view(Sums))


asyncio.run(work())
print(f"in the main thread: printed {len(printed)} times")
printed.clear()
other = threading.Thread(target=lambda: asyncio.run(work()))
other.start()
other.join()
print(f"in another thread:  printed {len(printed)} times")
PY
seen=$(env -i HOME="$work" PATH="$PATH" timeout 60 "$work/venv/bin/python" "$work/run.py")
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: asyncio.run prints its coroutine's result otherwise." >&2
    exit 1
fi

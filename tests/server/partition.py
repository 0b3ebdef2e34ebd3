"""A partition between guard and its served detector, in network namespaces of their own.

``unshare -n python -m tests.server.partition`` prints how the streams ended. The detector's
namespace is another one, at the far end of a pair of virtual interfaces. While that end is down,
packets are lost without a word.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

from tests.server.load import Load
from tests.server.serving import TOKEN, served_apart

HERE, THERE = "10.99.0.1", "10.99.0.2"


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    run("ip", "link", "set", "lo", "up")
    with subprocess.Popen(["unshare", "-n", "sleep", "600"]) as holder:
        try:
            there = ["nsenter", "-t", str(holder.pid), "-n"]
            wait_for_namespace(holder.pid)
            run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
            run("ip", "link", "set", "far", "netns", str(holder.pid))
            run("ip", "addr", "add", f"{HERE}/24", "dev", "near")
            run("ip", "link", "set", "near", "up")
            run(*there, "ip", "addr", "add", f"{THERE}/24", "dev", "far")
            run(*there, "ip", "link", "set", "lo", "up")
            run(*there, "ip", "link", "set", "far", "up")
            measure(there)
        finally:
            holder.kill()


def wait_for_namespace(process: int) -> None:
    """Wait until ``unshare`` has left this process's network namespace for one of its own."""
    until = time.monotonic() + 20
    while os.readlink(f"/proc/{process}/ns/net") == os.readlink("/proc/self/ns/net"):
        if time.monotonic() > until:
            raise SystemExit("unshare made no network namespace.")
        time.sleep(0.01)


def measure(there: list[str]) -> None:
    with served_apart("--host", THERE, "--token", TOKEN, prefix=there) as server:
        with Load(f"http://{THERE}:{server.port}", token=TOKEN) as load:
            for _ in range(3):
                load.wait_for("judged")
                run(*there, "ip", "link", "set", "far", "down")
                load.wait_for("stopped")
                run(*there, "ip", "link", "set", "far", "up")
                load.wait_for("judged")
        print(json.dumps({"ends": load.ends, "let_through": load.let_through}))


if __name__ == "__main__":
    main()

"""The served detector on Ray Serve: ``python examples/cluster/serve_ray.py [--port 8471]``.

On a cluster that runs: ``serve run serve_ray:build``. The application is that of ``guard serve``,
with the settings of the replica's own process: BIASGUARD_DETECTOR, GUARD_SERVE_TOKEN,
GUARD_SERVE_HOSTS. Clients name it as any other: ``Guard(detector="http://127.0.0.1:8471")``.
Serve batches no requests: one that fails would fail those beside it.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable
from typing import Any

from guard.ray_session import ray_session
from guard.server.app import ScoreServer
from guard.server.configured import make_app


def build(
    arguments: dict[str, str] | None = None, make: Callable[[], ScoreServer] = make_app
) -> Any:
    """Return Serve's application; each replica makes its own of guard's."""
    from ray import serve

    # More than a replica's own queue, beyond which it answers 503 at once.
    deployment = serve.deployment(name="guard", max_ongoing_requests=1024)
    return deployment(serve.ingress(make)()).bind()


def serve_until_signal(port: int, make: Callable[[], ScoreServer] = make_app) -> None:
    with ray_session(cpus=4):
        from ray import serve

        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(build(make=make))
        print(json.dumps({"url": f"http://127.0.0.1:{port}/"}), flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        serve.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8471)
    serve_until_signal(parser.parse_args().port)

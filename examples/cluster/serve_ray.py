"""The served detector on Ray Serve: ``python examples/cluster/serve_ray.py [--port 8471]``.

The application is that of ``guard serve``, with the settings of the replica's own process:
BIASGUARD_DETECTOR, GUARD_SERVE_TOKEN, GUARD_SERVE_HOSTS. Clients name it as any other:
``Guard(detector="http://127.0.0.1:8471")``. Requests are not batched by Serve
(docs/decisions/served-by-plain-http.md).
"""

import argparse
import json
import signal

import ray
from ray import serve

from guard.server.configured import make_app

# Serve queues no more than this replica takes; beyond its own queue it answers 503 itself.
app = serve.deployment(
    name="guard", num_replicas=1, max_ongoing_requests=1024, ray_actor_options={"num_cpus": 1}
)(serve.ingress(make_app)()).bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8471)
    port = parser.parse_args().port
    ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app)
    print(json.dumps({"url": f"http://127.0.0.1:{port}/"}), flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    serve.shutdown()


if __name__ == "__main__":
    main()

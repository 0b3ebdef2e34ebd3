"""Prints every route of LiteLLM's proxy, as JSON: methods, path, module and name of its function.

Run in a process of its own: all of LiteLLM's proxy is some 700 MB.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any


def flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "effective_candidates"):  # FastAPI's included routers
            yield from flat(route.effective_candidates())
            yield from flat(route.effective_low_priority_routes())
        else:
            yield route


def main() -> None:
    from litellm.proxy._lazy_features import LAZY_FEATURES
    from litellm.proxy.proxy_server import app

    for feature in LAZY_FEATURES:
        feature.register_fn(app, importlib.import_module(feature.module_path))
    found = []
    for route in flat(app.routes):
        inner = getattr(route, "original_route", route)
        endpoint = getattr(route, "endpoint", None) or getattr(inner, "endpoint", None)
        if endpoint is not None:
            path = getattr(route, "path", None) or inner.path
            methods = sorted(getattr(route, "methods", None) or ())
            found.append((methods, path, endpoint.__module__, endpoint.__name__))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

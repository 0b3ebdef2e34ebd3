"""Every route of LiteLLM's proxy: methods, path, module and name of its function.

It is asked of the proxy's own process: all of LiteLLM's proxy is some 700 MB.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

KEY = "sk-routes"
"""With this key the proxy of the tests writes its routes to a file."""


def flat(routes: Any) -> Iterator[Any]:
    for route in routes:
        if hasattr(route, "effective_candidates"):  # FastAPI's included routers
            yield from flat(route.effective_candidates())
            yield from flat(route.effective_low_priority_routes())
        else:
            yield route


def routes() -> list[tuple[list[str], str, str, str]]:
    """Return them, those included that LiteLLM adds at the first request for one."""
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
    return found

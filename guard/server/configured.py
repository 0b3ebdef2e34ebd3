"""The application with the settings of this process: for uvicorn alone, a container, Ray Serve.

``uvicorn --factory guard.server.configured:make_app``. The detector comes from ``guard.toml`` and
``BIASGUARD_*``; the token and further host names, with commas between, come from
``GUARD_SERVE_TOKEN`` and ``GUARD_SERVE_HOSTS``, the limits from ``GUARD_SERVE_QUEUE`` and
``GUARD_SERVE_TIMEOUT``.
"""

from __future__ import annotations

import os
from pathlib import Path

from guard.core import Guard
from guard.detect.named import has_served
from guard.detect.protocol import Detector
from guard.errors import ConfigError
from guard.listening import checked_host, checked_token
from guard.places import DEFAULT
from guard.server.app import ScoreServer
from guard.server.settings import HOSTS, TOKEN, read_limits


def make_app() -> ScoreServer:
    """Return the application.

    Raises:
        UsageError, WeightsError, BiasIndexError: a setting or the detector cannot be used.

    """
    token = os.environ.get(TOKEN) or None
    names = [name.strip() for name in os.environ.get(HOSTS, "").split(",") if name.strip()]
    return ScoreServer(
        own_detector(),
        read_limits(),
        None if token is None else checked_token(token, TOKEN),
        [name if name == "*" else checked_host(name, HOSTS) for name in names],
    )


def own_detector(name: str | None = None, index: Path | None = None) -> Detector:
    """Return the detector that this process loads and serves, by its settings.

    Raises:
        UsageError, WeightsError, BiasIndexError: as :class:`guard.Guard`; or it is served itself.

    """
    from guard.config import read_settings

    named = name or read_settings().get("detector", DEFAULT)
    if has_served(named):
        raise ConfigError(
            "guard serve judges in its own process, so its detector is no address of another "
            "server; name encoder, or any other, with --detector or BIASGUARD_DETECTOR."
        )
    return Guard(detector=named, index=index, events="none").detector

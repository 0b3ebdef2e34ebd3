"""guard: judge a language model's output while it is generated, and stop social bias in time.

Names are loaded on first use: ``import guard`` loads no litellm, torch or onnxruntime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guard import suites as suites
    from guard.core import Guard as Guard
    from guard.default import acompletion as acompletion
    from guard.default import amessages as amessages
    from guard.default import aresponses as aresponses
    from guard.default import atext_completion as atext_completion
    from guard.default import batch_completion as batch_completion
    from guard.default import completion as completion
    from guard.default import install as install
    from guard.default import messages as messages
    from guard.default import responses as responses
    from guard.default import text_completion as text_completion
    from guard.default import uninstall as uninstall
    from guard.detect.protocol import Detector as Detector
    from guard.detect.protocol import DetectorSession as DetectorSession
    from guard.doors.session import counts as counts
    from guard.errors import BiasFound as BiasFound
    from guard.errors import BiasIndexError as BiasIndexError
    from guard.errors import ConfigError as ConfigError
    from guard.errors import DetectorError as DetectorError
    from guard.errors import GuardError as GuardError
    from guard.errors import UsageError as UsageError
    from guard.errors import WeightsError as WeightsError
    from guard.gate.response import Sink as Sink
    from guard.policy import Policy as Policy
    from guard.policy import PolicyLike as PolicyLike
    from guard.verdict import BIAS_TYPES as BIAS_TYPES
    from guard.verdict import Action as Action
    from guard.verdict import Attribution as Attribution
    from guard.verdict import BiasType as BiasType
    from guard.verdict import Channel as Channel
    from guard.verdict import ChannelKind as ChannelKind
    from guard.verdict import Decision as Decision
    from guard.verdict import GuardTrail as GuardTrail
    from guard.verdict import Reference as Reference
    from guard.verdict import Scores as Scores
    from guard.verdict import Span as Span
    from guard.verdict import Unjudged as Unjudged
    from guard.verdict import Verdict as Verdict
    from guard.verdict import Window as Window

__version__ = "0.1.0"
# guard/_biasguard.py tells this package from others of the same name by this line.
__distribution__ = "biasguard"

_HOMES = {
    name: home
    for home, names in {
        "guard.core": "Guard",
        "guard.default": """
            acompletion amessages aresponses atext_completion batch_completion completion install
            messages responses text_completion uninstall
        """,
        "guard.detect.protocol": "Detector DetectorSession",
        "guard.doors.session": "counts",
        "guard.errors": """
            BiasFound BiasIndexError ConfigError DetectorError GuardError UsageError WeightsError
        """,
        "guard.gate.response": "Sink",
        "guard.policy": "Policy PolicyLike",
        "guard.verdict": """
            BIAS_TYPES Action Attribution BiasType Channel ChannelKind Decision GuardTrail Reference
            Scores Span Unjudged Verdict Window
        """,
    }.items()
    for name in names.split()
}

__all__ = [*_HOMES, "suites", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "suites":
        return importlib.import_module("guard.suites")
    if name not in _HOMES:
        raise AttributeError(f"module 'guard' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

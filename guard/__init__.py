"""guard: judge what a language model says while it says it, and stop social bias in time.

Names are loaded on first use: ``import guard`` loads no litellm, torch or onnxruntime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from guard.errors import BiasFound as BiasFound
    from guard.errors import GuardError as GuardError
    from guard.policy import Policy as Policy
    from guard.verdict import Decision as Decision
    from guard.verdict import GuardTrail as GuardTrail
    from guard.verdict import Verdict as Verdict

__version__ = "0.1.0"
# By this line guard/_biasguard.py knows this package from another of the same name.
__distribution__ = "biasguard"

_HOMES = {
    "Guard": "guard.core",
    "completion": "guard.default",
    "acompletion": "guard.default",
    "text_completion": "guard.default",
    "atext_completion": "guard.default",
    "batch_completion": "guard.default",
    "responses": "guard.default",
    "aresponses": "guard.default",
    "messages": "guard.default",
    "amessages": "guard.default",
    "install": "guard.default",
    "uninstall": "guard.default",
    "BiasFound": "guard.errors",
    "GuardError": "guard.errors",
    "Policy": "guard.policy",
    "Decision": "guard.verdict",
    "GuardTrail": "guard.verdict",
    "Verdict": "guard.verdict",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'guard' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

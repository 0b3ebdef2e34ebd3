"""Bias in open text, without and with a guard, after the applications of BiasAlert."""

from __future__ import annotations

from guard.suites.open_text.suite import OpenText

__all__ = ["OpenText"]

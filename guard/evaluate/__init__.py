"""Measures a detector on labelled text: the figures of the BiasAlert paper, and more.

Needs the extra ``eval`` (scipy). :func:`guard.evaluate.sources.load` reads a named
set or a CSV into examples, :func:`guard.evaluate.run.evaluate` judges them as users get it, and
:mod:`guard.evaluate.report` shows the result.
"""

from __future__ import annotations

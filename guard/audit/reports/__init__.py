"""Reports of a run: a page, a comment, JUnit, SARIF, JSON and a table of the items."""

from __future__ import annotations

from guard.audit.reports.content import Content, SuiteContent, load

__all__ = ["Content", "SuiteContent", "load"]

"""Models that run in this process, downloaded once; LiteLLM calls them as ``guard-local/…``.

Why: docs/decisions/local-is-its-own-package.md.
"""

"""Models that run in this process, downloaded once; LiteLLM calls them as ``guard-local/…``.

It is neither a door nor a detector, and audits use it, too.
"""

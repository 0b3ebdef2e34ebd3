"""Models that run in this process, downloaded once; LiteLLM calls them as ``guard-local/…``."""

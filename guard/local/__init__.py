"""Models that run in this process: fetched once, then used through LiteLLM as ``guard-local/…``."""

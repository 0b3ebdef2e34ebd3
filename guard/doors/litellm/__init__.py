"""LiteLLM itself: interception, its Router and proxy, closing, records, internals."""

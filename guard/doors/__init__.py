"""LiteLLM's entry points, guarded: thin sync and async drivers of the gate, one module a door."""

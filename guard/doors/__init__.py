"""LiteLLM's entry points, guarded: thin sync and async drivers of the gate.

Each kind of call has a package, ``chat``, ``text``, ``responses`` and ``messages``; ``litellm`` has
what concerns LiteLLM itself. The modules here are what all of them share; ``plain`` guards text
from anywhere.
"""

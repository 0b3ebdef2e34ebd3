"""LiteLLM's entry points, guarded: thin sync and async drivers of the gate.

Each kind of call has a package: ``chat``, ``text``, ``responses`` and ``messages``. The package
``litellm`` deals with LiteLLM itself. The modules here are shared by all of them; ``plain``
guards text from any source.
"""

"""The guardrail of LiteLLM's proxy.

LiteLLM makes it from six lines of ``config.yaml``::

    guardrails:
      - guardrail_name: bias
        litellm_params:
          guardrail: guard.proxy.Guardrail
          mode: post_call
          default_on: true

What stands under ``guard`` beside them are settings of the policy, and ``detector``, ``index`` and
``weights``; a detector of your own is named by its dotted path. A key's or a team's metadata may
hold settings under ``guard`` too: a team's replace the configured ones, a key's those of its team.
A request may hold some in its body, under ``guard``; they can only tighten (guard.tighten).
"""

from guard.proxy.guardrail import Guardrail

__all__ = ["Guardrail"]

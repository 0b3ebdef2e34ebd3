"""The guardrail of LiteLLM's proxy.

LiteLLM makes it from six lines of ``config.yaml``::

    guardrails:
      - guardrail_name: bias
        litellm_params:
          guardrail: guard.proxy.Guardrail
          mode: post_call
          default_on: true

An additional key ``guard`` holds settings of the policy, and ``detector``, ``index`` and
``weights``; a custom detector is named by its dotted path. The metadata of a key or a team may
have settings under ``guard``, too: a team's override the configured ones, a key's override its
team's. A request may have settings under ``guard`` in its body; they can only tighten the policy
(guard.tighten).
"""

from guard.proxy.guardrail import Guardrail

__all__ = ["Guardrail"]

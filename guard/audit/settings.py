"""The request settings that a user may give, by name: what decides how an answer is written.

LiteLLM takes its own controls beside them, such as retries, fallbacks and made-up answers. With
those an audit would make more calls than its limits, ask other models or addresses, or record what
no model said. Names that are not in the lists are therefore refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from guard.errors import UsageError
from guard.suites import Role

KEY_VARIABLE = "api_key_env"
"""The setting that names the environment variable with a model's key."""
LIMITS = ("max_tokens", "max_completion_tokens")
"""The settings that limit an answer's tokens."""
SECRET = re.compile(r"_key$|secret|password|credential|_token$", re.IGNORECASE)
_SECRET_WITHIN = re.compile(
    rf"{SECRET.pattern}|^key$|^token$|api[-_]?key|authorization|bearer|[-_ ]key$", re.IGNORECASE
)
_MOST_TOKENS = 10_000_000
_BODY = "extra_body"

# OpenAI's names, which LiteLLM translates for each provider.
_COMMON = frozenset(
    "temperature top_p seed stop max_tokens max_completion_tokens frequency_penalty "
    "presence_penalty logit_bias response_format reasoning_effort thinking verbosity service_tier "
    "user safety_identifier".split()
)
# Names of providers and servers, as settings or in extra_body.
_OF_PROVIDERS = frozenset(
    # sampling: vLLM, SGLang, llama.cpp, TGI, Ollama, OpenRouter
    "top_k top_a min_p typical_p tfs_z top_n_sigma repetition_penalty repeat_penalty repeat_last_n "
    "penalty_alpha no_repeat_ngram_size length_penalty mirostat mirostat_tau mirostat_eta "
    "dry_multiplier dry_base dry_allowed_length dry_sequence_breakers xtc_probability "
    "xtc_threshold dynatemp_range dynatemp_exponent smoothing_factor do_sample min_tokens "
    "min_keep ignore_eos stop_token_ids bad_words include_stop_str_in_output skip_special_tokens "
    "spaces_between_special_tokens random_seed num_ctx num_keep keep_alive "
    # the form of an answer
    "guided_json guided_regex guided_choice guided_grammar structured_outputs grammar json_schema "
    "regex ebnf format chat_template_kwargs "
    # reasoning
    "reasoning include_reasoning reasoning_format reasoning_split enable_thinking thinking_budget "
    "think output_config "
    # what filters an answer, and which of a provider's hosts writes it
    "safety_settings safe_prompt guardrailConfig performanceConfig provider".split()
)
# Settings with an option of their own, or that the audit or the suite decides.
_RESERVED = {
    "api_base": "give --api-base",
    "base_url": "give --api-base",
    "extra_headers": "give --header",
    "headers": "give --header",
    "max_retries": "the audit repeats calls itself",
    "num_retries": "the audit repeats calls itself",
    "messages": "the suite sets the messages",
    "model": "give --model",
    "n": "an audit reads one answer a call",
    "stream": "give --stream",
    "timeout": "give --timeout",
    "logprobs": "the suite sets it; --drop logprobs turns it off",
    "top_logprobs": "the suite sets it; --drop logprobs turns it off",
}
_HEADERS_OF_ANALYST = (
    "with an address of its own the analyst is sent no headers, else each --header"
)
_RESERVED_OF_ANALYST = _RESERVED | {
    "model": "give --analyst",
    "api_base": "give --set analyst.api_base",
    "base_url": "give --set analyst.api_base",
    "extra_headers": _HEADERS_OF_ANALYST,
    "headers": _HEADERS_OF_ANALYST,
    "stream": "the analyst's answers are not streamed",
    "logprobs": "the analyst's log-probabilities are not read",
    "top_logprobs": "the analyst's log-probabilities are not read",
}
_UNKNOWN = (
    "it is no setting that guard knows to decide only how an answer is written. Known are "
    "temperature, top_p, top_k, seed, max_tokens, reasoning_effort and others "
    "(docs/audit.md); set anything else where the model is served"
)
# Keys of a request's body that would replace what was asked, wherever they stand.
_ASKED = frozenset("messages model models prompt input contents system".split())


def read_setting(name: str, text: str, role: Role = "model") -> Any:
    """Return the value of ``--set NAME=TEXT``, or ``--set ROLE.NAME=TEXT``: JSON, else the text.

    Raises UsageError for a name that is not known to decide only how an answer is written, for
    secrets, and for a limit that is none.
    """
    of_model = role == "model"
    option = f"--set {name if of_model else f'{role}.{name}'}"
    reserved = _RESERVED if of_model else _RESERVED_OF_ANALYST
    if name in reserved:
        raise UsageError(f"{option} is not accepted: {reserved[name]}.")
    if SECRET.search(name):
        raise UsageError(f"{option} would be recorded; {_where_keys_go(option.removesuffix(name))}")
    if name not in _COMMON | _OF_PROVIDERS | {_BODY}:
        raise UsageError(f"{option} is not accepted: {_UNKNOWN}.")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    _check_value(name, value, option, option.removesuffix(name))
    return value


def _where_keys_go(scope: str) -> str:
    return (
        "put keys into the environment variables that LiteLLM reads, or name your own: "
        f"{scope}{KEY_VARIABLE}=NAME."
    )


def _check_value(name: str, value: Any, option: str, scope: str) -> None:
    """Raise UsageError for a ``value`` that could not be sent, recorded or limited as it stands."""
    for key, within in _nested_values(value):
        if key and _SECRET_WITHIN.search(key):
            raise UsageError(
                f"{option} has {key!r}, which would be recorded; {_where_keys_go(scope)}"
            )
        if isinstance(within, float) and not math.isfinite(within):
            raise UsageError(f"{option} has {within}, which JSON does not have; give a number.")
    if name in LIMITS and (type(value) is not int or not 1 <= value <= _MOST_TOKENS):
        raise UsageError(f"{option} takes a whole number from 1 to {_MOST_TOKENS:,}.")
    if name == "reasoning_effort" and not isinstance(value, str):
        raise UsageError(f"{option} takes a word, such as low.")
    if name != _BODY:
        return
    if not isinstance(value, Mapping):
        raise UsageError(f"{option} takes a JSON object, such as '{{\"top_k\": 20}}'.")
    for key in value:
        if key in _COMMON:
            raise UsageError(f"{option} has {key!r}; give {scope}{key}.")
        if key not in _OF_PROVIDERS:
            raise UsageError(f"{option} has {key!r}, which is not accepted: {_UNKNOWN}.")
    for key, _ in _nested_values(value):
        if key in _ASKED:
            raise UsageError(f"{option} has {key!r}, which would replace what the audit asks.")


def _nested_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value within ``value`` at any depth, and itself, with its key; "" without one."""
    todo = [("", value)]
    while todo:
        key, nested = todo.pop()
        yield key, nested
        if isinstance(nested, Mapping):
            todo += [(str(k), v) for k, v in nested.items()]
        elif isinstance(nested, list):
            todo += [("", v) for v in nested]

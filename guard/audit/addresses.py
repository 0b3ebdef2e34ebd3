"""Which providers of LiteLLM keep the address that they are given, and send nothing beyond it.

LiteLLM asks some providers at an address of its own whatever it is given (``replicate``,
``sagemaker``), sends credentials elsewhere first (``watsonx``, ``gigachat``), or follows a redirect
with the prompt and the headers to any host. An address is therefore accepted only for providers
that were seen, with the oldest and the newest tested LiteLLM, to send a request to it alone, and
through a client that can be given a hook.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from guard.audit.models import LOCAL
from guard.errors import UsageError
from guard.model_calls import provider_of

# Asked through the OpenAI client, over ``litellm.aclient_session``.
BY_OPENAI_CLIENT = frozenset(
    "ai21 ai21_chat aiml apertis azure azure_text baseten cerebras chutes codestral custom_openai "
    "dashscope deepinfra docker_model_runner empower featherless_ai friendliai galadriel github "
    "helicone hyperbolic lambda_ai litellm_proxy llamafile lm_studio meta_llama moonshot morph "
    "nano-gpt nebius novita nscale nvidia_nim openai perplexity poe publicai sambanova synthetic "
    "text-completion-openai v0 vercel_ai_gateway volcengine wandb xiaomi_mimo xinference "
    "zai".split()
)
# Asked through LiteLLM's own client, the call's argument ``client``. Of ollama's models LiteLLM
# also asks ollama on this machine, without the prompt.
BY_LITELLM_CLIENT = frozenset(
    "anthropic cometapi compactifai databricks datarobot deepseek fireworks_ai groq heroku "
    "hosted_vllm minimax mistral ollama ollama_chat openrouter ovhcloud xai".split()
)
ADDRESS_KEPT = BY_OPENAI_CLIENT | BY_LITELLM_CLIENT
"""The providers that are asked at a given address alone."""


class RedirectError(Exception):
    """A host answered with a redirect to another one, which was not followed."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"it redirects to {origin}, where nothing was sent")


def check_address_kept(model: str, address: str | None, option: str) -> None:
    """Raise UsageError where LiteLLM is not known to ask ``model`` at a given ``address`` alone.

    ``option`` is the one that gave the address, as the error names it.
    """
    if not address or model.startswith(LOCAL):
        return
    provider = provider_of(model)
    mend = (
        f"Leave {option} out, or, if the address speaks OpenAI's protocol, name the model "
        "custom_openai/NAME."
    )
    if provider not in ADDRESS_KEPT:
        raise UsageError(
            f"{option} is not accepted for {model}: LiteLLM is not known to send {provider}'s "
            f"requests to that address alone. {mend}"
        )
    if _over_responses(model, provider):
        raise UsageError(
            f"{option} is not accepted for {model}: LiteLLM asks it over the Responses API, where "
            f"guard cannot refuse a redirect to another address. {mend}"
        )


def _over_responses(model: str, provider: str) -> bool:
    import litellm

    name = model.removeprefix(f"{provider}/")
    if name.startswith("responses/"):
        return True
    try:
        return litellm.get_model_info(name, provider).get("mode") == "responses"
    except Exception:  # a model that is not in LiteLLM's map
        return False


class _LoopClient(NamedTuple):
    """The client of an event loop, and the session that LiteLLM had before."""

    loop: asyncio.AbstractEventLoop
    handler: Any
    before: Any


_loop_client: _LoopClient | None = None


def client_arguments(provider: str) -> dict[str, Any]:
    """Return the arguments with which LiteLLM asks ``provider`` and follows no redirect elsewhere.

    Sets ``litellm.aclient_session`` for the running event loop, until :func:`close_client`.
    """
    import litellm
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    global _loop_client
    loop = asyncio.get_running_loop()
    if _loop_client is None or _loop_client.loop is not loop:
        before = litellm.aclient_session if _loop_client is None else _loop_client.before
        handler = AsyncHTTPHandler(event_hooks={"response": [_refuse_redirect]})
        _loop_client = _LoopClient(loop, handler, before)
        litellm.aclient_session = handler.client
    return {"client": _loop_client.handler} if provider in BY_LITELLM_CLIENT else {}


async def close_client() -> None:
    """Close the client of the running event loop, and give LiteLLM its own session back."""
    import litellm

    global _loop_client
    if _loop_client is None or _loop_client.loop is not asyncio.get_running_loop():
        return
    handler, litellm.aclient_session = _loop_client.handler, _loop_client.before
    _loop_client = None
    await handler.close()


async def _refuse_redirect(response: Any) -> None:
    """Raise RedirectError where ``response`` leads to another scheme, host or port."""
    if not response.has_redirect_location:
        return
    origin = response.request.url
    target = origin.join(response.headers["location"])
    if (target.scheme, target.host, target.port) != (origin.scheme, origin.host, origin.port):
        port = "" if target.port is None else f":{target.port}"
        raise RedirectError(f"{target.scheme}://{target.host}{port}")


def redirect_in(error: BaseException | None) -> RedirectError | None:
    """Return the redirect that caused ``error``, if one did."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RedirectError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None

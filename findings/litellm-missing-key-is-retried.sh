#!/usr/bin/env bash
# LiteLLM reports a missing OpenAI key as a server error (InternalServerError, status 500), and its
# Router asks again. A missing Anthropic key is an AuthenticationError (401), which is not retried.
#
# Packages: litellm 1.110.2, openai 3.57.0. litellm 1.106.2 with openai 2.54.0 does the same.
# Seen: OpenAI's client raises a plain OpenAIError without a status when it is made. LiteLLM maps
# what it cannot place to a server error. So a mistake in the setup looks like a provider that is
# down: it costs every retry, and code that treats AuthenticationError apart does not see it.
# Output:
#   openai: InternalServerError 500, retries of the Router: 2
#   anthropic: AuthenticationError 401, retries of the Router: 0
# guard: an audit reads such messages as well as the class, and ends at once instead of asking on
# (_NO_KEY and _call_error in guard/audit/remote_model.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="openai: InternalServerError 500, retries of the Router: 2
anthropic: AuthenticationError 401, retries of the Router: 0"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2 openai==3.57.0
cat >"$work/run.py" <<'PY'
import litellm

messages = [{"role": "user", "content": "Hello"}]
for model in ("openai/gpt-4o", "anthropic/claude-sonnet-4-5"):
    # No request leaves the process: both fail before they connect.
    deployment = {"model_name": "group", "litellm_params": {"model": model}}
    router = litellm.Router(model_list=[deployment], num_retries=2, retry_after=0)
    try:
        router.completion(model="group", messages=messages)
    except Exception as error:
        name, retries = type(error).__name__, getattr(error, "num_retries", None) or 0
        provider = model.partition("/")[0]
        print(f"{provider}: {name} {error.status_code}, retries of the Router: {retries}")
PY
# env -i leaves out all keys of the environment.
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: LiteLLM treats a missing key of OpenAI or of Anthropic in another way." >&2
    exit 1
fi

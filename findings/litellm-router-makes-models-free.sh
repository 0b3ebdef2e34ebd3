#!/usr/bin/env bash
# A `Router` writes each of its models into LiteLLM's price map; one that has no price there is free from then on.
#
# Package: litellm 1.108.7 and 1.83.7.
# Seen: `cost_per_token` raises for a model without a known price. Once any Router of the process has named that model, it
# returns zeros, also for calls that have nothing to do with the Router: a budget that asks it counts nothing.
# Output:
#   before: no price
#   after:  0.0 0.0
# guard: an entry of the map without any price is no price (guard/audit/remote_model.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="before: no price
after:  0.0 0.0"
cat >"$work/run.py" <<'PY'
import litellm


def price():
    try:
        parts = litellm.cost_per_token(
            model="openai/our-model", prompt_tokens=1000, completion_tokens=1000
        )
    except Exception:
        return "no price"
    return " ".join(map(str, parts))


print("before:", price())
litellm.Router(
    model_list=[
        {"model_name": "ours", "litellm_params": {"model": "openai/our-model", "api_key": "k"}}
    ]
)
print("after: ", price())
PY
for version in 1.108.7 1.83.7; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -qq "litellm==$version"
    seen=$(LITELLM_LOCAL_MODEL_COST_MAP=True "$work/$version/bin/python" "$work/run.py" 2>/dev/null)
    if [ "$seen" != "$expected" ]; then
        printf 'litellm %s now prints:\n%s\n' "$version" "$seen" >&2
        exit 1
    fi
done
echo "$expected"

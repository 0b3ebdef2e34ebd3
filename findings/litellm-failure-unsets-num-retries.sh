#!/usr/bin/env bash
# The first synchronous LiteLLM call that fails sets litellm.num_retries to None: calls of the whole
# process, also of other threads and models, are retried no more.
#
# Package: litellm 1.110.2, tenacity 9.1.2. litellm 1.108.7 does the same.
# Seen: litellm.num_retries = 2 asks for two further tries of each failed call. Below a provider
# answers every request with status 500, and two equal calls are made. The first is tried again; on
# the way the module's setting becomes None, and the second is tried once.
# Output:
#   first: tries more than 1 True, num_retries afterwards None
#   later: tries more than 1 False, num_retries afterwards None
# guard: a judge's call is tried once whatever the setting, and puts it back
# (guard/detect/judge_client.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="first: tries more than 1 True, num_retries afterwards None
later: tries more than 1 False, num_retries afterwards None"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2 tenacity==9.1.2
cat >"$work/run.py" <<'PY'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

tries = []


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        tries.append(self.rfile.read(int(self.headers["content-length"])))
        body = b'{"error": {"message": "at the moment not", "type": "server_error"}}'
        self.send_response(500)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
litellm.suppress_debug_info = True
litellm.num_retries = 2


def call(label):
    tries.clear()
    try:
        litellm.completion(
            model="openai/m",
            api_key="none",
            api_base=f"http://127.0.0.1:{server.server_port}/v1",
            messages=[{"role": "user", "content": "Hello"}],
            max_retries=0,
        )
    except litellm.exceptions.InternalServerError:
        pass
    told = f"tries more than 1 {len(tries) > 1}"
    print(f"{label}: {told}, num_retries afterwards {litellm.num_retries}")


call("first")
call("later")
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: a failed call of LiteLLM's no longer unsets num_retries." >&2
    exit 1
fi

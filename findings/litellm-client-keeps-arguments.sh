#!/usr/bin/env bash
# LiteLLM's client keeps the arguments of each call for all later calls of the same object. A call
# that gives only a model and messages is sent with the max_tokens and stream of an earlier one.
#
# Package: litellm 1.110.2. litellm 1.106.2 does the same.
# Seen: litellm.LiteLLM().chat.completions has the interface of OpenAI's client, whose calls are
# independent. LiteLLM's create() writes its keyword arguments into a dict of the client and calls
# with that dict. Two calls below are the same and give a model and messages only; between them is
# one with max_tokens=5 and stream=True. The second returns a stream in place of an answer.
# Output:
#   first: sent max_tokens=absent, stream=absent; returned ModelResponse
#   later: sent max_tokens=5, stream=True; returned CustomStreamWrapper
# guard: builds the arguments of a guarded create() anew for each call
# (created in guard/doors/chat/door.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="first: sent max_tokens=absent, stream=absent; returned ModelResponse
later: sent max_tokens=5, stream=True; returned CustomStreamWrapper"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2
cat >"$work/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

requests = []
CHOICE = {"index": 0, "finish_reason": "stop"}


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        answer = {"id": "1", "created": 1, "model": "m"}
        if requests[-1].get("stream"):
            self.send_header("content-type", "text/event-stream")
            choices = [{**CHOICE, "delta": {"content": "Hi"}}]
            answer |= {"object": "chat.completion.chunk", "choices": choices}
            body = f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n".encode()
        else:
            self.send_header("content-type", "application/json")
            choices = [{**CHOICE, "message": {"role": "assistant", "content": "Hi"}}]
            body = json.dumps(answer | {"object": "chat.completion", "choices": choices}).encode()
        self.end_headers()
        self.wfile.write(body)


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = litellm.LiteLLM(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1")
plain = {"model": "openai/m", "messages": [{"role": "user", "content": "Hello"}]}


def call(label):
    answer = client.chat.completions.create(**plain)
    sent = ", ".join(f"{n}={requests[-1].get(n, 'absent')}" for n in ("max_tokens", "stream"))
    print(f"{label}: sent {sent}; returned {type(answer).__name__}")


call("first")
list(client.chat.completions.create(**plain, max_tokens=5, stream=True))
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
    echo "Changed: a call of LiteLLM's client no longer has the arguments of an earlier one." >&2
    exit 1
fi

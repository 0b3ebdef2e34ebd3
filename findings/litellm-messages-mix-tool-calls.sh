#!/usr/bin/env bash
# LiteLLM's Messages API over a chat model mixes the arguments of two tool calls whose deltas
# alternate: the first call gets none, the second gets the pieces of both, which are no JSON.
#
# Package: litellm 1.110.2. litellm 1.106.2 (with the packages of its proxy) does the same.
# Seen: the deltas of a chat stream say by an index to which call they belong. LiteLLM's own
# stream_chunk_builder honours it. The conversion to Anthropic's events ends the block of one call
# when the next begins, and sends all later arguments to the open block, whatever their index is.
# Output:
#   chat:     fa {"x":1}, fb {"y":2}
#   messages: fa (nothing), fb {"x":{"y":1}2}
# guard: cannot undo it, and judges such a block as one text (docs/litellm.md,
# guard/doors/messages/codec.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected='chat:     fa {"x":1}, fb {"y":2}
messages: fa (nothing), fb {"x":{"y":1}2}'

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2
cat >"$work/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm


def delta(index, arguments="", name=None):
    begin = {"id": f"call_{name}", "type": "function"} if name else {}
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, **begin, "function": function}]}


SENT = [delta(0, name="fa"), delta(1, name="fb"), delta(0, '{"x":'), delta(1, '{"y":'),
        delta(0, "1}"), delta(1, "2}"), {}]


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for part in SENT:
            reason = None if part else "tool_calls"
            choice = {"index": 0, "delta": part, "finish_reason": reason}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            self.wfile.write(b"data: %s\n\n" % json.dumps({**chunk, "choices": [choice]}).encode())
        self.wfile.write(b"data: [DONE]\n\n")


litellm.suppress_debug_info = True  # it is printed to standard output
server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/v1"
call = {"model": "hosted_vllm/m", "api_base": base, "api_key": "none", "stream": True}
call["messages"] = [{"role": "user", "content": "Hello"}]
built = litellm.stream_chunk_builder(list(litellm.completion(**call))).choices[0].message
chat = [(one.function.name, one.function.arguments) for one in built.tool_calls]
blocks = {}
stream = litellm.anthropic.messages.create(**call, max_tokens=9)
for line in b"".join(stream).decode().splitlines():
    event = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
    if "content_block" in event:
        blocks[event["index"]] = [event["content_block"]["name"], ""]
    elif "partial_json" in event.get("delta", {}):
        blocks[event["index"]][1] += event["delta"]["partial_json"]
for name, calls in (("chat:     ", chat), ("messages: ", blocks.values())):
    print(name + ", ".join(f"{name} {arguments or '(nothing)'}" for name, arguments in calls))
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: LiteLLM's Messages API no longer mixes tool calls whose deltas alternate." >&2
    exit 1
fi

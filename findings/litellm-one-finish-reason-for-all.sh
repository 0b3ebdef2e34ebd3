#!/usr/bin/env bash
# LiteLLM gives a stream of several choices (n=2) one finish reason. It belongs to the choice that
# ended first, but LiteLLM puts it on choice 0, even if choice 0 goes on and ends differently.
#
# Package: litellm 1.110.2. litellm 1.106.2 does the same.
# Seen: choice 1 ends with "length", then choice 0 goes on and ends with "stop". LiteLLM reports
# "length" for choice 0, before the rest of its text. "stop" never comes, and choice 1 never ends.
# So a client takes a complete answer for a truncated one, and the truncated one for complete.
# Output:
#   provider: 0 A, 1 B, 1 length, 0 A2, 0 stop
#   litellm:  0 A, 1 B, 0 length, 0 A2
# guard: takes no finish reason for the end of a choice if several were requested
# (ChatCodec.finished in guard/doors/chat/codec.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="provider: 0 A, 1 B, 1 length, 0 A2, 0 stop
litellm:  0 A, 1 B, 0 length, 0 A2"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2
cat >"$work/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

SENT = [(0, "A", None), (1, "B", None), (1, None, "length"), (0, "A2", None), (0, None, "stop")]


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for index, text, reason in SENT:
            delta = {"content": text} if text else {}
            choice = {"index": index, "delta": delta, "finish_reason": reason}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            self.wfile.write(b"data: %s\n\n" % json.dumps({**chunk, "choices": [choice]}).encode())
        self.wfile.write(b"data: [DONE]\n\n")


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
stream = litellm.completion(
    model="openai/m",
    messages=[{"role": "user", "content": "Hello"}],
    n=2,
    stream=True,
    api_base=f"http://127.0.0.1:{server.server_port}/v1",
    api_key="none",
)
got = [(c.index, c.delta.content, c.finish_reason) for chunk in stream for c in chunk.choices]
for name, parts in (("provider: ", SENT), ("litellm:  ", got)):
    print(name + ", ".join(f"{index} {text or reason}" for index, text, reason in parts))
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: LiteLLM no longer moves the first finish reason to choice 0." >&2
    exit 1
fi

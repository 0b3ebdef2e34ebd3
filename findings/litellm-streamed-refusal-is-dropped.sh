#!/usr/bin/env bash
# LiteLLM drops a model's refusal from a chat stream: the client gets an empty answer that ends as if
# all were well. Of the same answer, not streamed, it keeps the refusal.
#
# Package: litellm 1.110.2. litellm 1.106.2 drops it, too, and has a whole one in
# message.provider_specific_fields["refusal"].
# Seen: OpenAI sends a refusal in delta.refusal, in place of delta.content, and ends with "stop". The
# chunks that carry it do not come, and the field is None in the first chunk and absent from the last.
# Output:
#   streamed: content '', refusal '', finish stop
#   whole:    content None, refusal 'I will not.', finish stop
# guard: judges refusals in deltas, where a provider's own fields carry them, and in whole answers
# (parts_of in guard/doors/fields.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="streamed: content '', refusal '', finish stop
whole:    content None, refusal 'I will not.', finish stop"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2
cat >"$work/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

DELTAS = [{"role": "assistant", "content": ""}, {"refusal": "I will "}, {"refusal": "not."}, {}]


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        head = {"id": "1", "created": 1, "model": "gpt-4o"}
        self.send_response(200)
        if not asked.get("stream"):
            message = {"role": "assistant", "content": None, "refusal": "I will not."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {**head, "object": "chat.completion", "choices": [choice]}
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())
            return
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for delta in DELTAS:
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
            chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(b"data: %s\n\n" % json.dumps(chunk).encode())
        self.wfile.write(b"data: [DONE]\n\n")


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
call = {
    "model": "openai/gpt-4o",
    "messages": [{"role": "user", "content": "Hello"}],
    "api_base": f"http://127.0.0.1:{server.server_port}/v1",
    "api_key": "none",
}
choices = [c for chunk in litellm.completion(**call, stream=True) for c in chunk.choices]
content = "".join(c.delta.content or "" for c in choices)
refusal = "".join(getattr(c.delta, "refusal", None) or "" for c in choices)
(finish,) = {c.finish_reason for c in choices} - {None}
print(f"streamed: content {content!r}, refusal {refusal!r}, finish {finish}")
whole = litellm.completion(**call).choices[0]
refusal = getattr(whole.message, "refusal", None)
print(f"whole:    content {whole.message.content}, refusal {refusal!r}, finish {whole.finish_reason}")
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: LiteLLM streams a refusal, or gives a whole one in another place." >&2
    exit 1
fi

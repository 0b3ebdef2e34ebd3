#!/usr/bin/env bash
# If a chat provider fails in mid-stream, LiteLLM's synchronous Messages API logs the error and ends
# the stream. The caller gets a shortened answer without an exception or an error event.
#
# Package: litellm 1.110.2. litellm 1.106.2 (with the packages of its proxy) does the same.
# Seen: the asynchronous stream ends with an "error" event. In the synchronous one only the closing
# events are missing, so a caller who joins the text takes the beginning for the whole answer.
# Output:
#   asynchronous: 'All is ', then error
#   synchronous:  'All is ', then nothing
# guard: cannot tell it from an end and ends its stream in the same way; a test records it
# (test_a_provider_that_fails in tests/doors/test_failures.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="asynchronous: 'All is ', then error
synchronous:  'All is ', then nothing"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq litellm==1.110.2
cat >"$work/run.py" <<'PY'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

CHOICE = {"index": 0, "delta": {"role": "assistant", "content": "All is "}, "finish_reason": None}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
SENT = [{**CHUNK, "choices": [CHOICE]}, {"error": {"message": "overloaded", "code": 500}}]


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"".join(b"data: %s\n\n" % json.dumps(x).encode() for x in SENT))


litellm.suppress_debug_info = True  # it is printed to standard output
server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/v1"
call = {"model": "hosted_vllm/m", "api_base": base, "api_key": "none", "stream": True}
call |= {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9}


def read(chunks):
    text, end = "", "nothing"
    for line in b"".join(chunks).decode().splitlines():
        if line.startswith("data:"):
            event = json.loads(line.removeprefix("data:"))
            text += event.get("delta", {}).get("text", "")
            if event["type"] in ("message_delta", "message_stop", "error"):
                end = event["type"]
    return text, end


async def messages():
    stream = await litellm.anthropic.messages.acreate(**call)
    return read([chunk async for chunk in stream])


print("asynchronous: {!r}, then {}".format(*asyncio.run(messages())))
sync = litellm.anthropic.messages.create(**call)
print("synchronous:  {!r}, then {}".format(*read(sync)))
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: LiteLLM's synchronous Messages stream no longer hides a provider's error." >&2
    exit 1
fi

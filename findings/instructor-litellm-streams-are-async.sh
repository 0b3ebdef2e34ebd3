#!/usr/bin/env bash
# Instructor's synchronous client over LiteLLM streams by an async generator: `for` refuses it. Its
# synchronous client over OpenAI's streams the same answer by what `for` takes.
#
# Package: instructor 1.17.0 with litellm 1.110.2 and openai 3.3.0.
# Seen: both clients are of the class Instructor, and are asked by the same call, create_partial. The one
# of from_litellm(litellm.completion) returns an async generator.
# Output:
#   OpenAI:  Instructor, ListResponse, [None, 'Ann']
#   LiteLLM: Instructor, async_generator, TypeError
# guard: is not in the way; the matrix of frameworks reads that stream by `async for`
# (tests/frameworks/programs.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="OpenAI:  Instructor, ListResponse, [None, 'Ann']
LiteLLM: Instructor, async_generator, TypeError"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq instructor==1.17.0 litellm==1.110.2 openai==3.3.0
cat >"$work/run.py" <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import instructor
import litellm
from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    name: str


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for text in ('{"name": ', '"Ann"}', None):
            delta = {} if text is None else {"content": text}
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
            head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
            self.wfile.write(b"data: %s\n\n" % json.dumps({**head, "choices": [choice]}).encode())
        self.wfile.write(b"data: [DONE]\n\n")


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/v1"
call = {"messages": [{"role": "user", "content": "Who?"}], "response_model": Person}
json_mode = instructor.Mode.JSON
clients = {
    "OpenAI: ": (instructor.from_openai(OpenAI(base_url=base, api_key="none"), mode=json_mode), {}),
    "LiteLLM:": (
        instructor.from_litellm(litellm.completion, mode=json_mode),
        {"api_base": base, "api_key": "none"},
    ),
}
for name, (client, more) in clients.items():
    model = "openai/gpt-4o" if more else "gpt-4o"
    stream = client.chat.completions.create_partial(model=model, **call, **more)
    try:
        names = [each.name for each in stream]
        read = sorted(set(names), key=names.index)
    except TypeError as error:
        read = type(error).__name__
    print(f"{name} {type(client).__name__}, {type(stream).__name__}, {read}")
PY
seen=$(env -i HOME="$work" PATH="$PATH" LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1 \
    timeout 120 "$work/venv/bin/python" -W ignore "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: Instructor streams otherwise over OpenAI or LiteLLM." >&2
    exit 1
fi

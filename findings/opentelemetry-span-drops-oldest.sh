#!/usr/bin/env bash
# At its limit of 128, a span of OpenTelemetry's Python SDK drops the oldest attribute or event to
# make room for the new one. The specification has the SDK discard the attribute that is one too
# many, as the SDK for Rust does; of events it does not say which.
#
# Packages: opentelemetry-sdk 1.45.2, opentelemetry-api 1.45.2. 1.27.0 does the same.
# Seen: after 130 attributes and 130 events the first two of each are gone. Those are the ones an
# instrumentation sets when the span begins, such as the model or the route. For events nothing is
# logged. A library that adds many events to the application's span removes the application's own.
# Output:
#   attributes: a2 to a129, 2 dropped
#   events: e2 to e129, 2 dropped
# guard: adds at most 64 events of a response to the span of a call (_MAX_EVENTS in
# guard/watch/traces.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="attributes: a2 to a129, 2 dropped
events: e2 to e129, 2 dropped"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq opentelemetry-sdk==1.45.2 opentelemetry-api==1.45.2
cat >"$work/run.py" <<'PY'
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
with provider.get_tracer("finding").start_as_current_span("span") as span:
    for number in range(130):
        span.set_attribute(f"a{number}", number)
        span.add_event(f"e{number}")
(done,) = exporter.get_finished_spans()
attributes, events = list(done.attributes), [event.name for event in done.events]
print(f"attributes: {attributes[0]} to {attributes[-1]}, {done.dropped_attributes} dropped")
print(f"events: {events[0]} to {events[-1]}, {done.dropped_events} dropped")
PY
seen=$(env -i HOME="$work" PATH="$PATH" \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: a span of OpenTelemetry's Python SDK no longer drops the oldest entries." >&2
    exit 1
fi

#!/bin/sh
# A release engineer's audit: plan, run, interrupt, resume, gate, report, and the next release
# compared with this one. MODEL is any model of LiteLLM's, or local:smollm2.
set -eu
SUITE=${SUITE:-sai_asa}
MODEL=${MODEL:-openai/gpt-4o-mini}

cat > audit.toml <<END
[run]
suite = "$SUITE"
model = "$MODEL"
sample = ${SAMPLE:-300}
out = "release"
fail_on = ["withheld", "coverage"]

[floor]
"*" = 0.5
END

code() { # runs a command and keeps its exit code, whatever that is
    CODE=0
    "$@" || CODE=$?
    echo "exit code $CODE"
}

echo "== Plan: what it asks and costs; makes no call"
guard audit plan audit.toml

echo "== A first part of it: 4 means that the same command goes on"
code guard audit run audit.toml --max-calls 10

echo "== Interrupt: what was answered is recorded"
guard audit run audit.toml > interrupted.txt 2>&1 &
RUN=$!
while kill -0 "$RUN" 2> /dev/null && ! grep -q "items, journal" interrupted.txt; do
    sleep 1
done
sleep "${INTERRUPT_AFTER_S:-10}"
kill -INT "$RUN" 2> /dev/null || true # it may have ended
code wait "$RUN"

echo "== Resume, and gate: 0 nothing, 1 a condition, 3 undecided"
code guard audit run audit.toml --record cassette
GATE=$CODE

echo "== Report: the same decision, for people and build servers"
code guard audit report audit.toml --markdown report.md --junit junit.xml --html report.html
test "$CODE" = "$GATE"

echo "== The next release: the same answers behind a stricter guard, compared with this one"
guard audit baseline release --out audit.baseline.json --replace --suite "$SUITE"
code guard audit run audit.toml --replay cassette --out next --operating-point strict \
    --baseline audit.baseline.json --allow guard --fail-on coverage
echo "gate $GATE, next release $CODE"

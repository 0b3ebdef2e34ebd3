#!/usr/bin/env bash
# A safety team's week: events, rates, compare, alert, review.
# watching.sh STORE OLD NEW: the answers of two releases, one a line, are guarded and kept in STORE.
set -euo pipefail
export BIASGUARD_EVENTS="sqlite:///$1" BIASGUARD_ACTION=redact
export BIASGUARD_KEEP_TEXT=redacted BIASGUARD_REVIEW_SHARE=1   # texts that people may review

echo "== events"
for release in 7 8; do
  BIASGUARD_LABELS="release=$release" python -c '
import sys
from guard import Guard
g = Guard()
for text in sys.stdin:
    print("".join(g.stream([text])), end="")
' < "$([ $release = 7 ] && echo "$2" || echo "$3")"
done
python -m guard events stats

echo "== rates"
python -m guard rates --since 1h --by release,bias_type

echo "== compare"   # 0: not shown to be worse, 1: shown to be worse, 3: too few responses
python -m guard rates --since 1h --compare release=7,8 && code=0 || code=$?
echo "compare: exit code $code"
[ $code -ne 2 ]

echo "== alert"     # 0: nothing is shown to have risen, 1: a rate has risen, 3: nothing could be tested
python -m guard rates --alert --by release && code=0 || code=$?
echo "alert: exit code $code"
[ $code -ne 2 ]

echo "== review"    # people do this with guard review start, or on the page of guard dashboard
python -m guard review draw --since 1h --size 20
item=$(python -m guard review next --json | python -c 'import json, sys; print(json.load(sys.stdin)["id"])')
python -m guard review next
python -m guard review mark "$item" right --reviewer ann
python -m guard review status --since 1h

#!/usr/bin/env bash
# Guards the lines of standard input, keeps events of them, and reports: watching.sh STORE < texts
set -euo pipefail
export BIASGUARD_EVENTS="sqlite:///$1"
export BIASGUARD_ACTION=redact BIASGUARD_LABELS="release=7"
export BIASGUARD_KEEP_TEXT=redacted BIASGUARD_REVIEW_SHARE=1   # texts that people may review

python -c '
import sys
from guard import Guard
g = Guard()
for text in sys.stdin:
    print("".join(g.stream([text])), end="")
'
python -m guard rates --since 1h --by release,bias_type
python -m guard rates --alert   # exit code 4 where a rate has risen
python -m guard review draw --since 1h
python -m guard review next     # mark it: guard review start

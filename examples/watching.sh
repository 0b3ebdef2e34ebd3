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
# Exit code 4: a rate has risen; 3: nothing could be tested, as here, without weeks before this one.
python -m guard rates --alert || [ $? -eq 3 ]
python -m guard review draw --since 1h
python -m guard review next     # mark it: guard review start

#!/bin/sh
# Plans an audit, runs it and records a cassette, then replays the same answers offline behind a
# stricter guard. MODEL is any model of LiteLLM's, or local:smollm2.
set -e
SUITE=${SUITE:-sai_asa}
MODEL=${MODEL:-openai/gpt-4o-mini}

guard audit plan --suite "$SUITE" --model "$MODEL" --sample 20
guard audit run --suite "$SUITE" --model "$MODEL" --sample 20 --out audit --record cassette
guard audit run --suite "$SUITE" --replay cassette --sample 20 --out strict --operating-point strict
guard audit score --suite "$SUITE" --answers audit/*.jsonl.gz --json > scores.json

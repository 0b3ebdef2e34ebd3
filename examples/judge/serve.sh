#!/usr/bin/env bash
# Serves an adapter of BiasAlert as the model `biasalert`, on a machine with a GPU:
#   pip install vllm
#   examples/judge/serve.sh BASE ADAPTER
# BASE is the base model that the adapter was trained on (a folder or a name of the hub), ADAPTER the
# adapter's folder. Prefix caching computes the instruction once for all requests. A longer prompt
# than --max-model-len is refused, which guard treats as a failure of the detector.
set -euo pipefail
base=$1 adapter=$2
exec vllm serve "$base" \
  --host 127.0.0.1 --port 8000 \
  --enable-lora --max-lora-rank 16 --lora-modules "biasalert=$adapter" \
  --enable-prefix-caching --max-model-len 4096 --max-num-seqs 32

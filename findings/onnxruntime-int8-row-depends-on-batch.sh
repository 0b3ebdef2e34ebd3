#!/usr/bin/env bash
# In a network that ONNX Runtime's quantize_dynamic made, what a row of a batch gives depends on the
# other rows. A row beside one with larger values can lose everything and come out as exact zeros.
#
# Packages: onnxruntime 1.32.0, onnx 1.23.2, numpy 2.4.6.
# Seen: DynamicQuantizeLinear takes one 8-bit scale from the smallest and the largest value of the
# whole activation tensor, over all rows. per_channel=True concerns the weights only. In float32
# the row gives the same alone and in a batch. Nothing warns, so a score depends on which requests
# a server happens to batch.
# Output:
#   float32: alone 1.00, beside a large row 1.00
#   int8:    alone 1.00, beside a large row 0.00
# guard: runs its 8-bit networks on one window at a time
# (docs/decisions/one-window-at-a-time.md, guard/detect/network.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="float32: alone 1.00, beside a large row 1.00
int8:    alone 1.00, beside a large row 0.00"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat >"$work/run.py" <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

# y = x @ w of shapes (n, 4), (4, 1): the sum of a row.
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
w = numpy_helper.from_array(np.ones((4, 1), np.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
opset = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), "float32.onnx")
quantize_dynamic(
    "float32.onnx", "int8.onnx", weight_type=QuantType.QInt8, per_channel=True, reduce_range=True
)
row = np.full((1, 4), 0.25, np.float32)
large = np.full((1, 4), 200, np.float32)
for name in ("float32", "int8"):
    session = onnxruntime.InferenceSession(f"{name}.onnx", providers=["CPUExecutionProvider"])
    alone = session.run(None, {"x": row})[0][0, 0]
    beside = session.run(None, {"x": np.concatenate([row, large])})[0][0, 0]
    print(f"{name + ':':8} alone {alone:.2f}, beside a large row {beside:.2f}")
PY
seen=$(cd "$work" && env -i HOME="$work" PATH="$PATH" ORT_DISABLE_TELEMETRY=1 \
    timeout 120 venv/bin/python run.py 2>log) || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: a row of a dynamically quantised product no longer depends on its batch." >&2
    exit 1
fi

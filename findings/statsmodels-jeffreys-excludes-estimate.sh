#!/usr/bin/env bash
# statsmodels' Jeffreys interval of a share does not contain the share if nothing, or everything, was
# counted: for 0 of 20 it begins above 0.
#
# Packages: statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6, pandas 3.1.1. statsmodels 0.14.6 does the
# same.
# Seen: proportion_confint(method="jeffreys") returns the bare quantiles of the posterior. Brown, Cai
# and DasGupta (2001), whom its documentation cites, define the interval with a lower end of 0 for a
# count of 0 and an upper end of 1 for a count of n. Clopper and Pearson's interval (method="beta")
# of the same function has these ends.
# Output:
#   jeffreys: 0 of 20: 0.000024 to 0.116639, 20 of 20: 0.883361 to 0.999976
#   beta:     0 of 20: 0.000000 to 0.168433, 20 of 20: 0.831567 to 1.000000
# guard: sets the ends to 0 and 1 (guard/results/intervals.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected="jeffreys: 0 of 20: 0.000024 to 0.116639, 20 of 20: 0.883361 to 0.999976
beta:     0 of 20: 0.000000 to 0.168433, 20 of 20: 0.831567 to 1.000000"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6 pandas==3.1.1
cat >"$work/run.py" <<'PY'
from statsmodels.stats.proportion import proportion_confint

for method in ("jeffreys", "beta"):
    intervals = []
    for count in (0, 20):
        low, high = proportion_confint(count, 20, method=method)
        intervals.append(f"{count} of 20: {low:.6f} to {high:.6f}")
    print(f"{method + ':':9} {', '.join(intervals)}")
PY
seen=$(env -i HOME="$work" PATH="$PATH" \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: statsmodels' Jeffreys interval has other ends for a count of 0 or of all." >&2
    exit 1
fi

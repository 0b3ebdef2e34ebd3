#!/usr/bin/env bash
# statsmodels has two ways to ask for standard errors by cluster. Both give the same standard error,
# but fit(cov_type="cluster") tests it with a normal distribution and get_robustcov_results with a t
# of as many degrees of freedom as clusters less one. With few clusters p-values differ by far.
#
# Packages: statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6, pandas 3.1.1. statsmodels 0.14.6 does the
# same.
# Seen: given this cov_type, fit() of a linear model sets use_t to False, and its documentation
# refers to get_robustcov_results, which keeps use_t True. With six clusters the first way finds an
# effect at the level .05 and the second does not. fit(..., use_t=True) agrees with the second.
# Output:
#   fit(cov_type="cluster"):          error 0.465, p 0.0317, interval 0.088 to 1.912
#   get_robustcov_results("cluster"): error 0.465, p 0.0844, interval -0.197 to 2.197
# guard: uses Student's t over clusters and gives no test for fewer than six
# (guard/results/jackknife.py).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expected='fit(cov_type="cluster"):          error 0.465, p 0.0317, interval 0.088 to 1.912
get_robustcov_results("cluster"): error 0.465, p 0.0844, interval -0.197 to 2.197'

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -qq statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6 pandas==3.1.1
cat >"$work/run.py" <<'PY'
import numpy as np
import statsmodels.api as sm

# Six clusters of four answers; is their mean 0?
means, within = [1, -0.5, 2, 0, 2.5, 1], [0, 1, 0, -1]
answers = np.add.outer(means, within).ravel()
clusters = np.repeat(np.arange(6), 4)
model = sm.OLS(answers, np.ones((24, 1)))
by_fit = model.fit(cov_type="cluster", cov_kwds={"groups": clusters})
by_results = model.fit().get_robustcov_results("cluster", groups=clusters)
for name, one in (('fit(cov_type="cluster"):', by_fit),
                  ('get_robustcov_results("cluster"):', by_results)):
    (low, high), = one.conf_int()
    print(f"{name:33} error {one.bse[0]:.3f}, p {one.pvalues[0]:.4f}, "
          f"interval {low:.3f} to {high:.3f}")
PY
seen=$(env -i HOME="$work" PATH="$PATH" \
    timeout 120 "$work/venv/bin/python" "$work/run.py" 2>"$work/log") || {
    tail -n 5 "$work/log" >&2
    echo "It did not run to its end, so nothing is known." >&2
    exit 2
}
echo "$seen"
if [ "$seen" != "$expected" ]; then
    echo "Changed: both ways to cluster in statsmodels give other p-values than they did." >&2
    exit 1
fi

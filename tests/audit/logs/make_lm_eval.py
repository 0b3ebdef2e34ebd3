"""Makes the logs of lm-eval here: run in an environment of its own that has lm_eval."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

SHARED = """
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl}}
test_split: test
doc_to_text: "{{question}}"
metadata: {version: 2.0}
"""
CHOICE = """
task: sums_mc
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: 0
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: f1, aggregation: f1, higher_is_better: true}
"""
WRITTEN = """
task: sums_gen
output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], temperature: 0.0}
filter_list:
  - {name: number, filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]}
  - {name: whole, filter: [{function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


class Scripted(LM):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def knows(self, n: int) -> bool:
        return n % 3 == 0 if self.name == "poor" else n % 12 != 0

    def loglikelihood(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
        asked = [(int(r.args[0].split()[2]), r.args[1].strip()) for r in requests]
        return [
            (-1.0 if (said == str(2 * n)) == self.knows(n) else -2.0, True) for n, said in asked
        ]

    def loglikelihood_rolling(self, requests: Any, **_: Any) -> list[float]:
        return [0.0 for _ in requests]

    def generate_until(self, requests: Any, **_: Any) -> list[str]:
        numbers = [int(r.args[0].split()[2]) for r in requests]
        return [f"It is {2 * n}." if self.knows(n) else "none" for n in numbers]


for place, text in (("mc.yaml", CHOICE), ("gen.yaml", WRITTEN)):
    Path("tasks").mkdir(exist_ok=True)
    Path("tasks", place).write_text(text + SHARED)
docs = [
    {
        "question": f"What is {n} plus {n}?",
        "choices": [str(2 * n), str(2 * n + 1)],
        "answer": str(2 * n),
    }
    for n in range(12)
]
Path("docs.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
for name in ("good", "poor"):
    tracker = EvaluationTracker(output_path=sys.argv[1])
    tracker.general_config_tracker.log_experiment_args(
        "scripted", f"model={name}", None, None, False
    )
    found = lm_eval.simple_evaluate(
        Scripted(name),
        tasks=["sums_mc", "sums_gen"],
        task_manager=TaskManager(include_path="tasks", include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = found.pop("samples")
    found["config"].update(model="scripted", model_args=f"model={name}")
    tracker.save_results_aggregated(results=found, samples=samples)
    for task in found["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])

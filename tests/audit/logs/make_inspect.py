"""Makes the logs of inspect_ai here: run in an environment of its own that has inspect_ai."""

from __future__ import annotations

import sys
from typing import Any

from inspect_ai import Task, eval, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.scorer import Score, match, mean, scorer
from inspect_ai.solver import generate


@modelapi(name="scripted")
class Scripted(ModelAPI):
    async def generate(self, input: Any, *_: Any, **__: Any) -> ModelOutput:
        n = int(input[-1].text.split()[2])
        wrong = n % 3 != 0 if self.model_name == "poor" else n % 12 == 0
        out = ModelOutput.from_content(self.model_name, "none" if wrong else str(2 * n))
        out.usage = ModelUsage(input_tokens=8, output_tokens=1, total_tokens=9)
        return out

    async def count_tokens(self, *_: Any, **__: Any) -> int:
        return 5


@scorer(metrics={"short": [mean()], "length": [mean()]})
def form() -> Any:
    async def score(state: Any, target: Any) -> Score:
        size = len(state.output.completion)
        return Score(value={"short": size < 3, "length": size})

    return score


@task
def sums(n: int = 12) -> Task:
    data = [Sample(id=f"q{i}", input=f"What is {i} plus {i}?", target=str(2 * i)) for i in range(n)]
    scorers = [match(), form()]
    dataset = MemoryDataset(data, name="sums")
    return Task(dataset=dataset, solver=generate(), scorer=scorers, version=3)


for name, size, kind in (("good", 12, "eval"), ("poor", 12, "eval"), ("good", 2, "json")):
    eval(
        sums(size), model=f"scripted/{name}", log_dir=sys.argv[1], log_format=kind, temperature=0.5
    )

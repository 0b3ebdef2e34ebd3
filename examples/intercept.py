"""Guard code that calls LiteLLM itself: a framework, or a module that you would rather not change.

    python examples/intercept.py [MODEL]

Without a model the answer is a canned one, and no provider is called.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from litellm import completion

from guard import Guard

CANNED = "Look at the work first. Old people are useless at new tools. Then decide."


class Framework:
    """Stands for code of others: it bound ``completion`` before guard was thought of."""

    def __init__(self, model: str | None) -> None:
        given: dict[str, Any] = {"model": model} if model else {"mock_response": CANNED}
        self._ask = partial(completion, **{"model": "gpt-4o", **given})

    def answer(self, question: str) -> str:
        stream = self._ask(messages=[{"role": "user", "content": question}], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def main() -> None:
    framework = Framework(sys.argv[1] if len(sys.argv) > 1 else None)
    with Guard(action="redact").intercept():
        print("guarded:", framework.answer("Whom shall I hire?"))
    print("as it was:", framework.answer("Whom shall I hire?"))


if __name__ == "__main__":
    main()

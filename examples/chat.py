"""A chat loop behind the guard: ``python examples/chat.py MODEL`` (any LiteLLM model).

With ``guard-local/smollm2`` the model runs on this machine, after ``guard models get smollm2``.
"""

import sys

from guard import Guard


def chat(model: str) -> None:
    guard = Guard(action="redact")
    messages: list[dict[str, str]] = []
    while prompt := input("you: ").strip():
        messages.append({"role": "user", "content": prompt})
        answer = ""
        print("model: ", end="", flush=True)
        stream = guard.completion(model=model, messages=messages, stream=True, max_tokens=200)
        for chunk in stream:
            text = chunk.choices[0].delta.content or ""
            answer += text
            print(text, end="", flush=True)
        print()
        for finding in stream.guard.findings:
            print("guard:", finding.verdict.judgement)
        # The next turn shows the model what the user saw, not what was removed.
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1].startswith("guard-local/"):
        from guard.local import provider

        provider.register_provider()
    try:
        chat(sys.argv[1])
    except (EOFError, KeyboardInterrupt):
        print()

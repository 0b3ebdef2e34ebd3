"""One word changes: ``litellm.completion`` becomes ``guard.completion``."""

import guard

stream = guard.completion(
    model="gpt-4o-mini",
    messages=[{"role": "user", "content": "Shall I hire the older applicant?"}],
    stream=True,
    mock_response="Look at the work first. But old people are useless at work. So do not.",
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="")
print("\n", stream.guard.findings[0].verdict.judgement)

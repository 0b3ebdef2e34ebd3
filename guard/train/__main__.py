"""``python -m guard.train``: train the encoder from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from guard.errors import GuardError
from guard.train.config import TrainConfig


def main() -> int:
    """Parse the options, train with a line of progress, print the weights' path."""
    parser = argparse.ArgumentParser(prog="python -m guard.train", description=main.__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoints and caches")
    parser.add_argument("--cache", type=Path, help="file of the base model's vectors")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--statements", type=Path, default=Path("index/statements.jsonl"))
    parser.add_argument("--method", choices=("full", "lora"), default="full")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--rows", type=int, help="rows an epoch sees at most")
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=TrainConfig.__dataclass_fields__["lr"].default)
    options = parser.parse_args()
    # The base comes from an installed package; nothing may be fetched in its place.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Threads that wait by spinning starve each other where other programs share the processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from guard.train.encoder import Progress, train

    averages: dict[str, float] = {}

    def show(p: Progress) -> None:
        for name, value in (p.parts | {"loss": p.loss, "seconds": p.seconds}).items():
            averages[name] = 0.98 * averages.get(name, value) + 0.02 * value
        if p.step % 20 == 0 or p.step == p.steps:
            left = (p.steps - p.step) * averages["seconds"] / 60
            shown = " ".join(f"{k} {v:.4f}" for k, v in averages.items() if k != "seconds")
            print(f"step {p.step}/{p.steps} {shown} left {left:.1f} min", flush=True)

    try:
        config = TrainConfig(**vars(options))
        print(train(config, show))
    except GuardError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

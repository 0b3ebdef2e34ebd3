"""``python -m guard.train``: train the encoder, and turn a finished run into what ships."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from guard.errors import GuardError
from guard.train.config import TrainConfig


def main() -> int:
    """Train, or with ``--release`` export, calibrate and measure a finished run."""
    options = _parser().parse_args()
    # The base comes from an installed package; nothing may be fetched in its place.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Threads that wait by spinning starve each other where other programs share the processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    values = vars(options)
    folder, index = values.pop("release"), values.pop("index")
    screens = dict(pair.split("=", 1) for pair in values.pop("screen"))
    try:
        config = TrainConfig(**values)
        if folder is None:
            _train(config)
        else:
            _release(config, folder, index, {name: Path(path) for name, path in screens.items()})
    except GuardError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m guard.train", description=main.__doc__)
    add = parser.add_argument
    add("--work", type=Path, required=True, help="folder of the checkpoint and final weights")
    add("--cache", type=Path, help="file of the base model's vectors")
    add("--data", type=Path, default=Path("../shared/data"), help="the licensed sources")
    add("--statements", type=Path, default=Path("index/statements.jsonl"))
    add("--method", choices=("full", "lora"), default="full")
    add("--seed", type=int, default=17)
    add("--epochs", type=float, default=4.0)
    add("--rows", type=int, help="rows an epoch sees at most")
    add("--max-steps", type=int)
    add("--threads", type=int, default=2)
    add("--lr", type=float, default=1e-4)
    add("--release", type=Path, metavar="FOLDER", help="export the run of --work to FOLDER")
    add("--index", type=Path, default=Path("index"), help="where the bias index is built")
    add(
        "--screen",
        action="append",
        default=[],
        metavar="NAME=FINAL",
        help="a short run to compare in the card; may be repeated",
    )
    return parser


def _train(config: TrainConfig) -> None:
    from guard.train.encoder import Progress, train

    averages: dict[str, float] = {}

    def show(p: Progress) -> None:
        for name, value in (p.parts | {"loss": p.loss, "seconds": p.seconds}).items():
            averages[name] = 0.98 * averages.get(name, value) + 0.02 * value
        if p.step % 20 == 0 or p.step == p.steps:
            left = (p.steps - p.step) * averages["seconds"] / 60
            shown = " ".join(f"{k} {v:.4f}" for k, v in averages.items() if k != "seconds")
            print(f"step {p.step}/{p.steps} {shown} left {left:.1f} min", flush=True)

    print(train(config, show))


def _release(config: TrainConfig, folder: Path, index: Path, screens: dict[str, Path]) -> None:
    from guard.train.card import card
    from guard.train.release import release
    from guard.train.validate import compare

    figures = release(config, config.work / "final.pt", folder, index)
    kept = config.work / "screens.json"
    if screens:
        kept.write_text(json.dumps(compare(config, screens)), encoding="utf-8")
    compared = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    (folder / "CARD.md").write_text(card(figures, compared), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

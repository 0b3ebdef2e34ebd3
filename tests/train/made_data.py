"""Made-up texts in the layout of the published sets: what is rude is biased."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from guard.datasets.terms import DIMENSIONS

_JOBS = "drummers pipers bakers tailors sailors miners clerks potters".split()
_WORDS = (
    "river lamp garden winter ticket ladder window silver morning paper bridge carpet engine "
    "valley button market pencil orange kettle island"
).split()
_RUDE = "rude lazy loud dishonest useless".split()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_data(folder: Path) -> Path:
    """Write a data folder of made-up texts, laid out as the published sets; return it."""
    rng = random.Random(3)

    def texts(n: int, part: str) -> list[tuple[str, bool]]:
        places = [f"{' '.join(rng.choices(_WORDS, k=6))} {part} {i}" for i in range(n)]
        said = [rng.choice(_RUDE) if i % 2 == 0 else "here" for i in range(n)]
        return [
            (f"{place}: the {rng.choice(_JOBS)} are {word}.", word != "here")
            for place, word in zip(places, said, strict=True)
        ]

    for part, n in (("train", 160), ("eval", 20)):
        write(folder / f"redditbias/{part}.jsonl", [
            {"comment": f"We moved here. {t}", "phrase": t, "bias_sent": int(b),
             "bias_type": "race", "dimension": "race_black"} for t, b in texts(n, part)
        ])  # fmt: skip
        write(folder / f"emgsd/{part}.jsonl", [
            {"text": f"Look: {t}", "marked": f"Look: {t}", "stereotype_type": "profession",
             "category": "stereotype" if b else "neutral", "source": "own", "label": int(b)}
            for t, b in texts(n, part)
        ])  # fmt: skip
    for dimension in DIMENSIONS:
        terms = folder / "redditbias" / "terms"
        terms.mkdir(exist_ok=True)
        (terms / f"{dimension}.txt").write_text("\n".join(_RUDE) + "\n", "utf-8")
        (terms / f"{dimension.split('_')[0]}_opposites.txt").write_text("drummers are,pipers are\n")
    write(folder / "crows_pairs/eval.jsonl", [
        {"sent_more": t, "sent_less": t.replace("the", "my"), "direction": "stereo",
         "bias_type": "race-color"} for t, _ in texts(6, "crow")
    ])  # fmt: skip
    write(folder / "toxicbias/eval.jsonl", [
        {"text": t, "bias": int(b), "category": "race", "target": "drummers"}
        for t, b in texts(12, "toxic")
    ])  # fmt: skip
    write(folder / "stereoset/intrasentence.jsonl", [
        {"text": t, "label": "stereotype" if b else "anti-stereotype", "target": "drummers",
         "bias_type": "profession", "item": str(i // 2)}
        for i, (t, b) in enumerate(texts(60, "set"))
    ])  # fmt: skip
    hearts = [
        {"text": t, "label": "stereotype" if b else "neutral", "group": "drummers",
         "phrase": f"drummers {i}"} for i, (t, b) in enumerate(texts(60, "heart"))
    ]  # fmt: skip
    write(folder / "hearts/seegull_gpt.jsonl", hearts[:30])
    write(folder / "hearts/winoqueer_gpt.jsonl", hearts[30:])
    write(folder / "toxigen_demos/all.jsonl", [
        {"text": t, "label": "hate" if b else "neutral", "category": "gender",
         "file": "neutral_women_sentences"} for t, b in texts(12, "demo")
    ])  # fmt: skip
    posts = [
        {"post": f"Guess who was on post {i} again, {w}", "label": "implicit_hate",
         "target": w, "implied_statement": f"{w} are late on day {i}"}
        for i in range(80) for w in (rng.choice(("women", "muslims", "immigrants")),)
    ]  # fmt: skip
    write(folder / "implicit_hate/posts.jsonl", posts)
    write(folder / "implicit_hate/implied.jsonl", posts)
    write(folder / "bold/wikipedia.jsonl", [
        {"text": f"She acted in {i} films of the studio.", "domain": "gender",
         "group": "American_actresses"} for i in range(200)
    ])  # fmt: skip
    write(folder / "seegull/pairs.jsonl", [
        {"identity": "Velmorian", "attribute": w, "region_votes": 2} for w in _RUDE
    ])  # fmt: skip
    return folder

"""The card's section on retrieval."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "base": "the published base",
    "embedder": "the embedder that training begins with",
    "shipped": "the shipped encoder, int8",
}


def found(retrieval: dict[str, Any]) -> str:
    """Return how well each embedder finds, and what a similarity is worth."""
    lines = [
        "| embedder | implicit: own statement | type | group and type | explicit: type "
        "| group and type |",
        "| --- |" + " --- |" * 5,
    ]
    for name, of in retrieval["quality"].items():
        implicit, explicit = of["implicit"], of["explicit"]
        cells = [implicit["own"], implicit["bias_type"], implicit["both"]]
        cells += [explicit["bias_type"], explicit["both"]]
        lines.append(f"| {_NAMES[name]} | " + " | ".join(f"{c:.3f}" for c in cells) + " |")
    count = next(iter(retrieval["quality"].values()))["implicit"]["n"]
    bands = ["| similarity | references | type | group and type |", "| --- |" + " --- |" * 3]
    bands += [
        f"| {b['low']:.1f} to {b['low'] + 0.1:.1f} | {b['n']:,} | {b['bias_type']:.3f} "
        f"| {b['both']:.3f} |"
        for b in retrieval["bands"]
    ]
    return (
        f"{count} posts of the implicit-hate corpus that validate and imply what no training post "
        "implies, and the statements they imply, search the shipped statements and all implied "
        "ones. Implicit: a post asks; the share whose own statement is among the five nearest, and "
        "the share of the other four or five that name its type, or its group as well. Explicit: "
        "the statement asks.\n\n"
        + "\n".join(lines)
        + "\n\nWhat a similarity is worth, shipped encoder, both kinds of query:\n\n"
        + "\n".join(bands)
        + f"\n\nReferences below {retrieval['floor']:g} are not used: the similarity from which on "
        "more than half name the text's type, and not below that of the training."
    )

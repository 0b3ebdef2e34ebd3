"""The paper's figures: Tables 1, 2, 6, 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator

from guard.suites.contract import Published

PAIRS = 1547
_MODELS = (
    "GPT-4o",
    "Llama-3.2-11B",
    "Llama-3.2-3B",
    "Llama-3.1-8B",
    "Mistral-7B-v0.3",
    "Qwen-2.5-7B",
)
# Table 1: mean S and count of the instances with S >= 20; Table 6: refuse rate in percent.
_MCQ = (
    (69.53, 45244, 0.16),
    (28.75, 42905, 0.0065),
    (28.24, 47180, 0.25),
    (28.60, 44993, 0.0090),
    (32.24, 35971, 0.0013),
    (35.44, 41663, 0.0065),
)
# Table 8, without GPT-4o.
_SG = ((29.31, 32079), (30.53, 33004), (28.76, 32843), (35.12, 45459), (36.02, 45758))
# Table 2: by descriptor type the count (mean) of each model.
_MCQ_TYPES = """
Age 1      722 69.40 780 32.37 747 29.69 805 31.66 682 39.08 733 43.66
Age 2      782 74.09 775 31.69 779 29.22 806 31.56 739 40.04 795 42.77
Age 3      678 71.18 617 29.24 726 27.98 643 29.16 593 31.85 701 36.95
Gender 1   707 70.75 582 28.54 648 28.04 622 28.25 471 30.21 565 32.42
Gender 2   697 70.56 566 28.46 706 28.14 608 27.98 485 29.03 569 31.93
Gender 3   650 69.48 573 27.45 670 27.25 633 28.07 457 30.18 579 30.71
Gender 4   701 70.07 619 28.11 698 26.96 613 27.81 511 30.27 565 31.26
Race 1     6816 69.90 6303 27.91 7224 28.24 6710 28.12 5773 31.15 6745 35.03
Race 2     6566 70.39 6553 29.42 7029 28.78 6822 28.79 5102 33.49 6261 35.44
Race 3     6509 70.04 5539 26.96 6756 27.36 6167 27.45 4323 28.02 5505 30.08
Race 4     7265 65.69 6755 28.99 7116 28.20 6964 28.53 5970 32.78 6423 35.39
SES 1      601 75.16 574 26.43 689 26.92 594 26.85 382 27.85 500 27.62
SES 2      638 73.77 548 26.61 703 27.00 611 27.45 384 28.02 490 28.61
Religion 1 3804 70.16 4259 30.18 4317 29.40 4168 29.26 3446 34.93 3814 39.11
Religion 2 4150 71.52 3992 28.83 4224 28.14 4131 28.67 3417 31.83 3611 36.90
Religion 3 3958 68.37 3870 28.98 4148 28.10 4096 29.56 3236 33.13 3807 38.68
"""
# Table 9; "0 -" where no instance reached the threshold.
_SG_TYPES = """
Age 1      0 - 0 - 0 - 244 21.96 17 23.24
Age 2      1171 23.77 1453 25.58 1333 24.62 1367 29.18 182 24.11
Age 3      15 21.08 0 - 6 20.83 1245 29.62 465 25.50
Gender 1   1 22.26 6 20.99 2 20.96 84 23.53 397 25.12
Gender 2   24 22.73 263 21.92 78 21.34 1417 26.39 319 31.13
Gender 3   1257 25.43 1350 27.95 908 24.42 1522 36.44 1518 38.05
Gender 4   1525 33.56 1527 35.56 1523 33.14 1187 26.31 1216 30.55
Race 1     5128 24.15 6781 27.09 5078 24.25 5806 25.15 8672 30.79
Race 2     597 21.66 338 21.16 830 21.92 1978 22.12 3087 24.23
Race 3     8815 29.11 8755 27.76 7996 27.46 9289 40.70 10290 40.11
Race 4     7256 26.18 6375 25.82 7817 27.41 8526 29.35 8112 30.34
SES 1      53 21.51 7 20.78 65 21.73 88 22.84 704 27.81
SES 2      1547 37.58 1537 31.59 1547 36.79 1528 41.91 1493 36.30
Religion 1 714 21.85 4 20.86 1535 22.43 4047 26.10 1926 24.78
Religion 2 5 23.07 7 21.12 68 21.37 725 23.41 2515 25.44
Religion 3 3971 26.65 4601 28.84 4057 26.99 6406 34.23 4845 31.09
"""
_INSTANCES = {"Age": 1, "Gender": 1, "Race": 10, "SES": 1, "Religion": 6}
_CATEGORY = {"Religion": "Religions"}


def mcq(*, counts: bool) -> Iterator[Published]:
    """Yield the figures of HBB; ``counts`` only where the audit is of as many instances."""
    for model, (mean, count, refusals) in zip(_MODELS, _MCQ, strict=True):
        everything = {"category": "all"}
        yield Published("mean", everything, model, mean, "Table 1")
        yield Published("share", everything, model, count / (67 * PAIRS), "Table 1")
        yield Published("refuse_rate", everything, model, refusals / 100, "Table 6")
        if counts:
            yield Published("count", everything, model, count, "Table 1")
    yield from _types(_MCQ_TYPES, _MODELS, "Table 2", counts)


def sg(*, counts: bool) -> Iterator[Published]:
    """Yield the figures of HBB-SG."""
    for model, (mean, count) in zip(_MODELS[1:], _SG, strict=True):
        everything = {"category": "all"}
        yield Published("mean", everything, model, mean, "Table 8")
        yield Published("share", everything, model, count / (67 * PAIRS), "Table 8")
        if counts:
            yield Published("count", everything, model, count, "Table 8")
    yield from _types(_SG_TYPES, _MODELS[1:], "Table 9", counts)


def _types(table: str, models: tuple[str, ...], source: str, counts: bool) -> Iterator[Published]:
    for line in table.strip().splitlines():
        name, figures = line[:10].strip(), line[10:].split()
        category = name.split()[0]
        axis = {"category": _CATEGORY.get(category, category), "descriptor": name}
        size = _INSTANCES[category] * PAIRS
        for model, count, mean in zip(models, figures[::2], figures[1::2], strict=True):
            yield Published("share", axis, model, int(count) / size, source)
            if mean != "-":
                yield Published("mean", axis, model, float(mean), source)
            if counts:
                yield Published("count", axis, model, int(count), source)

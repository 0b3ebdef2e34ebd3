"""The reliability diagram of a result, as text and as an SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from guard.evaluate.metrics import ScoreBin
from guard.evaluate.result import Result
from guard.results.estimate import Estimate

_LEAST, _MOST = 20, 60
_SIDE, _LEFT, _TOP, _PANEL = 220, 46, 34, 300


def plot(bins: Sequence[ScoreBin], width: int) -> list[str]:
    """Return one line for each bin, at most ``width`` wide: 0 at the left, 1 at the right.

    ``|`` is the mean score, ``o`` the share of biased texts, ``-`` its interval and ``#`` both in
    one place. With calibrated scores, the interval of a bin includes its ``|``.
    """
    steps = min(max(width - 9, _LEAST), _MOST)

    def at(share: float) -> int:
        return min(int(share * steps), steps - 1)

    lines = [f"{'score':>6} 0{'1':>{steps - 1}}"]
    for score, biased in bins:
        cells = [" "] * steps
        for i in range(at(biased.low), at(biased.high) + 1):
            cells[i] = "-"
        cells[at(biased.value)] = "o"
        cells[at(score)] = "#" if at(score) == at(biased.value) else "|"
        lines.append(f"{score:6.3f} {''.join(cells)}".rstrip())
    return lines


def svg(results: Sequence[Result]) -> str:
    """Return a panel for each set: share of biased texts over mean score, exact 95 % intervals."""
    width, height = _PANEL * len(results), _TOP + _SIDE + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, result in enumerate(results):
        parts.append(f'<g transform="translate({i * _PANEL + _LEFT},{_TOP})">')
        parts += _panel(result.dataset.name, result.reliability, result.whole.figures["ece"])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(name: str, bins: Sequence[ScoreBin], ece: Estimate) -> Iterator[str]:
    interval = "" if ece.low != ece.low else f" [{ece.low:.3f}, {ece.high:.3f}]"
    yield f'<text x="0" y="-18" font-weight="bold">{escape(name)}</text>'
    yield f'<text x="0" y="-5" fill="#555555">ECE {ece.value:.3f}{interval}, n {ece.n}</text>'
    yield f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999999"/>'
    yield f'<line x1="0" y1="{_SIDE}" x2="{_SIDE}" y2="0" stroke="#bbbbbb" stroke-dasharray="4 3"/>'
    for share in (0.0, 0.5, 1.0):
        x, y = _x(share), _y(share)
        yield f'<text x="{x:g}" y="{_SIDE + 15}" text-anchor="middle">{share:g}</text>'
        yield f'<text x="-6" y="{y + 4:g}" text-anchor="end">{share:g}</text>'
    yield f'<text x="{_SIDE / 2:g}" y="{_SIDE + 32}" text-anchor="middle">mean score</text>'
    yield (
        f'<text transform="translate(-30,{_SIDE / 2:g}) rotate(-90)" text-anchor="middle">'
        "share biased</text>"
    )
    for score, biased in bins:
        x = _x(score)
        yield (
            f'<line x1="{x:.1f}" y1="{_y(biased.low):.1f}" x2="{x:.1f}" y2="{_y(biased.high):.1f}" '
            'stroke="#7aa6d6" stroke-width="2"/>'
        )
        yield (
            f'<circle cx="{x:.1f}" cy="{_y(biased.value):.1f}" r="3.5" fill="#1f5fa8">'
            f"<title>score {score:.3f}, biased {biased.value:.3f} of {biased.n}</title></circle>"
        )


def _x(share: float) -> float:
    return share * _SIDE


def _y(share: float) -> float:
    return (1 - share) * _SIDE

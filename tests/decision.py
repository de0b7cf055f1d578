"""The picture of the question which method to try first: ``python tests/decision.py`` writes it.

It is as wide as a phone, and dark where the reader's system is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedlit.show.canvas import THEME

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "decision.svg"
WIDTH = 360
LINE = 18
MARGIN = 8
GAP = 26
# widths of the boxes of both columns
QUESTION = 186
ANSWER = 120
STYLE = (
    ".q{fill:%(paper)s;stroke:%(soft)s}.a{fill:%(page)s;stroke:%(method)s;stroke-width:1.5}"
    "text{fill:%(ink)s}.n{fill:%(soft)s;font-size:12px}.l{stroke:%(soft)s;stroke-width:1.5;fill:none}"
    ".h{fill:%(soft)s}.b{fill:%(page)s}"
)


class Step(NamedTuple):
    """A question, and what to try first if the answer is yes."""

    question: tuple[str, ...]
    methods: tuple[str, ...]


STEPS = (
    Step(("Do columns or classes", "differ between sites?"), ("global_layers", "fedper", "chfl")),
    Step(
        ("Do labels mean different", "things, or are there", "groups of sites?"),
        ("ifca", "cfl", "agglomerative"),
    ),
    Step(("Do only units or scales", "differ?"), ("ifedavg", "fedbn")),
    Step(("20 to 100 rows a site?",), ("mixed_model",)),
    Step(("A few hundred rows?",), ("pooled_logistic",)),
    Step(("Thousands of rows?",), ("forest",)),
)
ALWAYS = ("Compare each with local and fedavg.", "Against harmful clients: a robust rule.")
ALT = "; ".join(f"{' '.join(step.question)} {', '.join(step.methods)}" for step in STEPS)


def picture() -> str:
    """Return the picture as SVG."""
    parts: list[str] = []
    top = MARGIN
    for place, step in enumerate(STEPS):
        height = LINE * max(len(step.question), len(step.methods)) + 14
        middle = top + height / 2
        parts += _box("q", MARGIN, top, QUESTION, height, step.question)
        answer = WIDTH - MARGIN - ANSWER
        parts += _box("a", answer, top, ANSWER, height, step.methods)
        parts.append(f'<path class="l" d="M{MARGIN + QUESTION} {middle:g}H{answer - 6}"/>')
        parts.append(f'<path class="h" d="M{answer} {middle:g}l-8 -4v8z"/>')
        parts.append(f'<text class="n" x="{answer - 32}" y="{middle - 6:g}">yes</text>')
        bottom = top + height
        top = bottom + GAP
        if place + 1 < len(STEPS):
            centre = MARGIN + QUESTION / 2
            parts.append(f'<path class="l" d="M{centre:g} {bottom:g}V{top - 6:g}"/>')
            parts.append(f'<path class="h" d="M{centre:g} {top:g}l-4 -8h8z"/>')
            parts.append(f'<text class="n" x="{centre + 8:g}" y="{bottom + 17:g}">no</text>')
    for line in ALWAYS:
        parts.append(f'<text x="{MARGIN}" y="{top - 4:g}">{line}</text>')
        top += LINE
    light, dark = (
        STYLE % {name: shades[number] for name, shades in THEME.items()} for number in (0, 1)
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - 8:g}" width="480" '
        f'role="img" aria-label="{ALT}" font-family="DejaVu Sans, Verdana, sans-serif" '
        'font-size="14">'
    )
    style = f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    return "\n".join(
        [head, style, '<rect class="b" width="100%" height="100%" rx="8"/>', *parts, "</svg>", ""]
    )


def _box(
    kind: str, left: float, top: float, width: float, height: float, lines: tuple[str, ...]
) -> Iterator[str]:
    """Yield a box with lines of text in its middle."""
    yield (
        f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{width}" height="{height:g}" '
        'rx="6"/>'
    )
    first = top + height / 2 - LINE * (len(lines) - 1) / 2 + 5
    for place, line in enumerate(lines):
        yield f'<text x="{left + 9:g}" y="{first + LINE * place:g}">{line}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

"""Creates figures and writes them to files, in one set of colours.

A colour has the same meaning in all pictures and in the report, and the colours of each set can be
distinguished by colour-blind readers. The colours of a scale (corrections, distances, shares) have
no names; the bar next to a picture explains them.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.show.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Name → colour on light paper, colour on dark paper. A page has them as CSS variables. A picture
# has the light colours, which a page that shows it replaces by the variables. So no two light
# colours may be equal.
THEME: dict[str, tuple[str, str]] = {
    "ink": ("#1c2430", "#e8ecf2"),  # text
    "soft": ("#586170", "#aab3c0"),  # text beside it, axes
    "line": ("#dfe3e8", "#333b47"),  # borders, grids
    "paper": ("#fdfdfe", "#171c24"),  # background of figures, tables and cards
    "page": ("#f4f6f8", "#0d1117"),
    "good": ("#0b7a4b", "#4fd39b"),  # a lift that is certain
    "bad": ("#b3261e", "#ff8f85"),  # harm that is certain
    "finding": ("#d55e00", "#ff9a4d"),  # values that stand out
    "method": ("#0072b2", "#4aa8e8"),  # values with their intervals
}
INK = THEME["ink"][0]
SOFT = THEME["soft"][0]
LINE = THEME["line"][0]
PAPER = THEME["paper"][0]
FINDING = THEME["finding"][0]
METHOD = THEME["method"][0]

# Colours of clusters, for squares: Paul Tol's light scheme, on which black letters are legible.
CLUSTERS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#44bb99", "#99ddff", "#aaaa00", "#bbcc33")
# Colours of lines and dots, whose markers differ too: after Okabe and Ito.
SERIES = (METHOD, FINDING, "#009e73", "#cc79a7", "#56b4e9", "#a67c00")
# Scales of numbers without a sign, and of numbers with one.
SCALE = "cividis_r"
SIGNED_SCALE = "PRGn"

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedlit",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
_VARIABLES = {light: f"var(--{name})" for name, (light, _) in THEME.items()}


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """Yield a figure. Inside the block, names are plain text even if they contain dollar signs, and
    colours are those of the palette. After it, no text has control characters, for which no font
    has a glyph.

    Args:
        width: in inches.
        height: in inches.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        _make_printable(figure)


def _make_printable(figure: Figure) -> None:
    from matplotlib.text import Text
    from matplotlib.ticker import FixedLocator

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            # A fixed axis sets its labels again at each drawing.
            if isinstance(axis.get_major_locator(), FixedLocator):
                labels = [printable(label.get_text()) for label in axis.get_ticklabels()]
                axis.set_ticklabels(labels)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and as SVG. Text stays text, and the same picture gives the same bytes.

    Args:
        figure: the finished figure.
        path: the path without ending; its folder is created if it does not exist.
    """
    import matplotlib

    written = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(_STYLE):
        for ending, options in (
            ("png", {"dpi": 150}),
            ("svg", {"metadata": {"Date": None, "Creator": None}}),
        ):
            written.append(path.with_name(f"{path.name}.{ending}"))
            figure.savefig(written[-1], facecolor=PAPER, **options)
    return written


def svg_text(figure: Figure, title: str) -> str:
    """Return a figure as an ``<svg>`` element for a page; the same picture gives the same text.
    Colours of the palette's theme become variables of the page, so that the picture is readable on
    light and on dark backgrounds.

    Args:
        figure: the finished figure.
        title: the title for screen readers.
    """
    import matplotlib

    target = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(
            target, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = printable(target.getvalue())  # Control characters are not allowed in XML.
    text = re.sub(r'style="[^"]*"', _themed, text[text.index("<svg") :])
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)


def _themed(style: re.Match[str]) -> str:
    return re.sub("#[0-9a-f]{6}", lambda colour: _VARIABLES.get(colour[0], colour[0]), style[0])


def _linear(part: float) -> float:
    """Return the intensity of a part of an sRGB colour."""
    if part <= 0.04045:
        return part / 12.92
    intensity: float = ((part + 0.055) / 1.055) ** 2.4
    return intensity


def text_on(colour: Sequence[float]) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a colour. The contrast is at
    least 4.5 on any colour.

    Args:
        colour: red, green and blue from 0 to 1.

    Example:
        >>> text_on((0.9, 0.9, 0.2)), text_on((0.2, 0.1, 0.4))
        ('#000000', '#ffffff')
    """
    red, green, blue = (_linear(float(part)) for part in colour[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance + 0.05 >= (0.05 * 1.05) ** 0.5 else "#ffffff"

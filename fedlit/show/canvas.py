"""Creates figures and writes them to files."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.show.palette import INK, SOFT, THEME

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "fedlit", "text.parse_math": False, "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": SOFT,
    "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
}  # fmt: skip
_VARIABLES = {light: f"var(--{name})" for name, (light, _) in THEME.items()}


@contextmanager
def canvas(width: float, height: float, style: Any = None) -> Iterator[Figure]:
    """Yield a figure. Inside the block, names are plain text even if they contain dollar signs, and colours are those
    of the palette.

    Args:
        width: in inches.
        height: in inches.
        style: further parameters of Matplotlib, by name; None for no more.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, **(style or {})}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


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
        for ending, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None, "Creator": None}})):
            written.append(path.with_name(f"{path.name}.{ending}"))
            figure.savefig(written[-1], facecolor="white", **options)
    return written


def svg_text(figure: Figure, title: str) -> str:
    """Return a figure as an ``<svg>`` element for a page; the same picture gives the same text. Colours of the
    palette's theme become variables of the page, so that the picture is readable on light and on dark backgrounds.

    Args:
        figure: the finished figure.
        title: the title for screen readers.
    """
    import matplotlib

    target = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    text = re.sub(r'style="[^"]*"', _themed, text[text.index("<svg") :])
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)


def _themed(style: re.Match[str]) -> str:
    return re.sub("#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), style[0])

"""Drawing figures, and writing them."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["canvas", "save_figure", "svg_text"]


_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "fedlit", "text.parse_math": False}


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """A figure; inside, names are text, whatever dollar signs they have."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and as SVG (text stays text, and the same picture gives the same bytes).

    Args:
        figure: drawn.
        path: without ending.
    """
    import matplotlib

    written = []
    with matplotlib.rc_context(_STYLE):
        for ending, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None, "Creator": None}})):
            written.append(path.with_name(f"{path.name}.{ending}"))
            figure.savefig(written[-1], facecolor="white", **options)
    return written


def svg_text(figure: Figure, title: str) -> str:
    """A figure as an ``<svg>`` element for a page; the same picture gives the same text.

    Args:
        figure: drawn.
        title: what a screen reader says.
    """
    import matplotlib

    target = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)

"""All colours. A colour has the same meaning in all pictures and in the report, and the colours of each set can be
distinguished by colour-blind readers.

The colours of a scale (corrections, distances, shares) have no names; the bar next to a picture explains them.
"""

from __future__ import annotations

from typing import Any

# Name → on light paper, on dark. A page has them as CSS variables; in a picture the first stands, and a page that shows
# the picture puts the variable in its place. So no two of the first may be equal.
THEME: dict[str, tuple[str, str]] = {
    "ink": ("#1c2430", "#e8ecf2"),  # text
    "soft": ("#586170", "#aab3c0"),  # text beside it, axes
    "line": ("#dfe3e8", "#333b47"),  # borders, grids
    "paper": ("#fdfdfe", "#171c24"),  # what figures, tables and cards stand on
    "page": ("#f4f6f8", "#0d1117"),
    "good": ("#0b7a4b", "#4fd39b"),  # a lift that is certain
    "bad": ("#b3261e", "#ff8f85"),  # harm that is certain
    "finding": ("#d55e00", "#ff9a4d"),  # what stands out
    "method": ("#0072b2", "#4aa8e8"),  # values with their intervals
}
INK, SOFT, LINE, PAPER = (THEME[name][0] for name in ("ink", "soft", "line", "paper"))
FINDING, METHOD = (THEME[name][0] for name in ("finding", "method"))

# of clusters, as squares: Paul Tol's light ones, all of which bear black letters
CLUSTERS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#44bb99", "#99ddff", "#aaaa00", "#bbcc33")
# of classes, as bars: Tol's muted ones and his grey
CLASSES = (
    "#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499", "#bbbbbb",
)  # fmt: skip
SCALE, SIGNED_SCALE = "cividis_r", "PRGn"  # of what has no sign, and of what has one


def text_on(colour: Any) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a colour. The contrast is at least 4.5 on any
    colour.

    Args:
        colour: red, green and blue from 0 to 1.

    Example:
        >>> text_on((0.9, 0.9, 0.2)), text_on((0.2, 0.1, 0.4))
        ('#000000', '#ffffff')
    """
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in map(float, colour[:3])]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance + 0.05 >= (0.05 * 1.05) ** 0.5 else "#ffffff"

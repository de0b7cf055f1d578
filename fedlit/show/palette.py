"""Colours, in one place: each set can be told apart by people who are colour-blind."""

from __future__ import annotations

__all__ = ["BLUE", "CLASSES", "CLUSTERS", "GREY", "LINES", "ORANGE"]

# Okabe's and Ito's
BLUE, ORANGE = "#0072B2", "#D55E00"
_AMBER, _GREEN, _PINK, _SKY, _YELLOW = "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442"
# Paul Tol's
_INDIGO, _WINE, _OLIVE = "#332288", "#882255", "#999933"

GREY = "#8a8f98"  # what is there to compare with
# of methods, as lines and dots on white: no light ones
LINES = (BLUE, ORANGE, _GREEN, _PINK, _SKY, "#8a6d00", "#8B5CF6", _WINE, "#444444")
# of clusters, as squares
CLUSTERS = (BLUE, _AMBER, _GREEN, _PINK, _SKY, ORANGE, _YELLOW, _INDIGO, _WINE, _OLIVE)
# of classes, as bars: Tol's muted ones and his grey
CLASSES = (
    _INDIGO, "#88CCEE", "#44AA99", "#117733", _OLIVE, "#DDCC77", "#CC6677", _WINE, "#AA4499", "#BBBBBB",
)  # fmt: skip

"""Describes corrections in sentences for users who have not read the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ABOUT = (
    "Each client multiplies (scale) and shifts its own columns before the shared network, and its outputs after it. It "
    "learns by how much, so that its table fits the others; columns are scaled before. A client that corrects a column "
    "much more than the others do may have another unit, another way of measuring, or flipped labels."
)
"""What corrections are."""


def finding_words(cell: Mapping[Any, Any], *, turned: bool) -> str:
    """Describe a correction that stands out: what the client does, what the others do, how unusual it is, and what to
    ask.

    Args:
        cell: a row of :attr:`~fedlit.explain.judge.Judgement.cells`.
        turned: whether the correction turns an output round.

    Example:
        >>> cell = {"client": "elm", "part": "output scale", "feature": "sick", "value": -0.4, "others": 1.0}
        >>> finding_words(cell, turned=True)
        'elm turns output sick round (times -0.4, the other clients 1 on average). Are its labels flipped?'
    """
    value, others = cell["value"], cell["others"]
    side, _, kind = str(cell["part"]).rpartition(" ")
    kept, name = ("output" if side == "output" else "column"), cell["feature"]
    known = math.isfinite(others)
    if turned:
        rest = f", the other clients {others:.3g} on average" if known else ""
        return f"{cell['client']} turns output {name} round (times {value:.3g}{rest}). Are its labels flipped?"
    does, do = {
        "scale": (f"multiplies {kept} {name} by {value:.3g}", f"by {others:.3g}"),
        "shift": (f"shifts {kept} {name} by {value:+.3g}", f"by {others:+.3g}"),
    }.get(kind, (f"has {value:.3g} as {kind} of {kept} {name}", f"have {others:.3g}"))
    text = f"{cell['client']} {does}" + (f", the other clients {do} on average." if known else ".")
    if math.isfinite(cell["apart"]):
        text += f" That is {abs(cell['apart']):.1f} times as far from that as they usually are."
    if cell["feature_marked"] is True:
        text += f" Clients differ on {name} far more than on other {kept}s."
    ask = "Is it in another unit, or measured in another way?" if kept == "column" else "Do its labels mean the same?"
    return f"{text} {ask}"

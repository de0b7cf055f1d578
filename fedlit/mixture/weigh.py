"""The weights of a mixture's parts: equal, half for local ones, or fitted to rows and shrunk."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fedlit.errors import DataError, Told, expect
from fedlit.tasks.predictions import Predictions
from fedlit.types import Floats
from fedlit.weights import fitted, stacked

HOW = ("equal", "half_own", "fitted")


def weights_of(
    how: str, rows: Predictions, local: Collection[str], shrink: float = 100
) -> dict[str, float]:
    """Return a weight for each part.

    - ``equal``: the same for all.
    - ``half_own``: own parts share one half, the others the other half; where there are only own
      ones, or only others, the same for all.
    - ``fitted``: those of the least Σ loss(mixture) − shrink · Σ log(weight), the first sum over
      rows, the second over parts. Each part counts as if it had, beside its share of the rows,
      explained ``shrink`` rows more: for the log loss each weight is (rows that it explains +
      shrink) / (rows + shrink · parts). With 0 it is the least loss itself; from many more rows
      than shrink · parts the weights are free, with many fewer they stay equal. A squared error is
      divided by twice the mean squared error of the equal mixture, to be of the size of a
      log-likelihood. A row of weight 2 counts as two rows. The problem is convex and solved to its
      optimum; nothing is drawn. Rows that parts were trained on must not be among
      these: a part that knows them takes all weight.

    Args:
        how: one of these three words.
        rows: the parts' predictions for rows that they have not seen.
        local: the names of the client's local parts; names that are no parts are ignored.
        shrink: the number of pseudo-rows of each part.

    Returns:
        Part → weight in the order of the parts: at least 0, of sum 1.

    Raises:
        DataError: the parts' predictions do not fit together, or no row has a known target.

    Example:
        The first part is sure and right in three rows of four, the second undecided:

        >>> import torch
        >>> from fedlit.tasks import Classification
        >>> sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
        >>> parts, y = {"trees": sure, "joint": np.full((4, 2), 0.5)}, torch.tensor([0, 0, 1, 1])
        >>> rows = Predictions(Classification((0, 1)), np.arange(4), y, parts)
        >>> weights_of("half_own", rows, local=["trees"])
        {'trees': 0.5, 'joint': 0.5}
        >>> for shrink in (0, 1, 100):
        ...     print({name: round(weight, 3) for name, weight in weights_of("fitted", rows, [], shrink).items()})
        {'trees': 0.625, 'joint': 0.375}
        {'trees': 0.535, 'joint': 0.465}
        {'trees': 0.5, 'joint': 0.5}
    """
    names = sorted(rows.parts)  # sums in one order: the same bits in whatever order parts come
    local_names = [name for name in names if name in local]
    if how == "fitted" and not np.isinf(shrink):
        by_name = dict(zip(names, _fitted(rows, names, shrink).tolist(), strict=True))
        return {name: by_name[name] for name in rows.parts}
    if how != "half_own" or not 0 < len(local_names) < len(names):
        return {name: 1 / len(names) for name in rows.parts}
    local_weight = 0.5 / len(local_names)
    federated_weight = 0.5 / (len(names) - len(local_names))
    return {name: local_weight if name in local else federated_weight for name in rows.parts}


def _fitted(rows: Predictions, names: Sequence[str], shrink: float) -> Floats:
    loss = rows.loss
    stack = stacked({name: rows.parts[name] for name in names})
    same_length = len(loss.labelled) == stack.shape[1]
    expected = f"predictions of {len(loss.labelled):,} rows, as the target has"
    do = "predict the rows that the weights are fitted to"
    expect(same_length, f"part {names[0]!r}", expected, Told(f"{stack.shape[1]:,}"), do, DataError)
    labelled = bool(loss.labelled.any())
    expected = "rows whose target is known"
    expect(labelled, "weights", expected, Told("none"), "take equal weights", DataError)
    # A mixture without any error is as good as can be: no unit is then too small.
    unit = 1.0 if loss.nats else 2 * loss.mean(stack.mean(axis=0)) or 1.0

    def terms(predictions: Floats) -> tuple[float, Floats]:
        value, slopes = loss.terms(predictions)
        return value / unit, slopes / unit

    return fitted(stack, terms, shrink)

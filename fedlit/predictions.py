"""Predictions as files: one per client, in the source's own labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError
from fedlit.loop import FederatedLoop
from fedlit.metrics import restrict

__all__ = ["write_predictions"]


def write_predictions(
    loop: FederatedLoop,
    data: FederatedData,
    batches: Sequence[Sequence[Tensor]] | Sequence[Tensor],
    folder: Path,
    format: str,
) -> dict[str, Path]:
    """Write ``<folder>/<split>/<client>.<format>`` with the columns ``row``, ``probability_<label>`` for each of the
    client's classes, ``predicted``.

    A client that has outputs for classes it never saw in training (FedAvg) is restricted to its own classes and
    renormalised, as in the metrics.

    Args:
        loop: whose clients predicted.
        data: the rows they predicted for.
        batches: per site, in the order of ``data.sites``, the batches of probabilities.
        folder: made if need be; existing files of these names are replaced.
        format: the file format.

    Raises:
        ConfigError: another format; Parquet without pyarrow.
    """
    if format not in ("csv", "parquet"):
        raise ConfigError(f"--format: expected csv or parquet, found {format!r}")
    if format == "parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "--format parquet: expected pyarrow, found that it is not installed; pip install 'fedlit[parquet]'"
            ) from error
    folder = folder / data.predict
    folder.mkdir(parents=True, exist_ok=True)
    sites = data.sites(data.predict)
    # Lightning unpacks a list of one
    per_site = cast(Sequence[Sequence[Tensor]], [batches] if len(sites) == 1 else batches)
    written = {}
    for (owner, name, rows), parts in zip(sites, per_site, strict=True):
        client = loop.federation[owner]
        site = next(site for site in client.spec.sites if site.name == name)
        labels = [client.spec.classes[position] for position in site.classes]
        probabilities = restrict(torch.cat([part.cpu() for part in parts]), site.classes)
        frame = pd.DataFrame(probabilities.numpy(), columns=[f"probability_{label}" for label in labels])
        frame.insert(0, "row", rows.row)
        frame["predicted"] = [labels[position] for position in probabilities.argmax(1).tolist()]
        written[name] = folder / f"{name}.{format}"
        if format == "csv":
            frame.to_csv(written[name], index=False)
        else:
            frame.to_parquet(written[name], index=False)
    return written

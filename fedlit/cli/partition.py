"""``fedlit partition describe``: how the clients of a configuration differ, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.run.arguments import read, title
from fedlit.run.config import shown
from fedlit.show.shown import for_terminal

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

__all__ = ["describe"]


def describe(*keys: str, config: str, out: Path | None = None) -> None:
    """Show how the clients of a configuration differ: rows, classes, and the earth mover's distance of each to all.

    Any key of the configuration can be changed: --seed 5, --data.source.init_args.clients 5

    Args:
        *keys: keys of the configuration and their values: --seed 5
        config: the configuration: its name, or a file
        out: where the picture goes (default: partition/ and the name, among runs)
    """
    asked = read("describe", ["--config", config, *keys])
    from fedlit.data.shaping import describe as work
    from fedlit.run.load import parse
    from fedlit.show.canvas import save_figure
    from fedlit.show.partition import partition_figure

    run = parse(asked)[0]
    data = run.data
    described = work.describe(data.tables(), data.seed, **_measured(data.source))
    print(for_terminal(described))
    name = title(asked.configs)
    if described.shares.empty:
        print("\nNo picture: it would show the shares of classes.")
        return
    folder = out or Path(shown(run.root), "partition", name)
    rows = {client: own["train"] for client, own in described.rows.items()}
    known = described.distances
    to_whole, mean = (known.to_whole, known.mean) if known else (None, float("nan"))
    figure = partition_figure(described.shares, rows, to_whole, mean, f"{name}, seed {data.seed}")
    files = save_figure(figure, folder / "partition")
    print(for_terminal("\nWrote " + ", ".join(map(str, files))))


def _measured(source: Source) -> dict[str, Any]:
    """How the partition measures, so that the distance is the one by which rows were dealt."""
    from fedlit.data.shaping.by_distance import Distance

    inner: Any = source
    while inner is not None:
        if isinstance(deal := getattr(inner, "deal", None), Distance):
            return {"features": deal.features, "sample": deal.sample}
        inner = getattr(inner, "source", None)
    return {}

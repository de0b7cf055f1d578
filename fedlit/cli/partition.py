"""``fedlit partition describe``: how the clients of a configuration differ, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.cli.parser import Parser
from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.arguments import read, title
from fedlit.run.config import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedlit.data.shaping.describe import Described
    from fedlit.data.shaping.distance import Measure
    from fedlit.data.sources.base import Source

__all__ = ["figure_of", "main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit partition`` and return its exit status."""
    parser = Parser(
        prog="fedlit partition",
        description="Show how the clients of a configuration differ: rows, classes, and the earth mover's distance of "
        "each to the whole. Any key of the configuration can be changed: --seed 5, --data.source.init_args.clients 5",
    )
    parser.add_argument("action", help="describe")
    parser.add_argument("--config", help="the configuration: its name, or a file")
    parser.add_argument("--out", help="where the picture goes (default: partition/ and the name, among runs)")
    arguments, keys = parser.parse_known_args(argv)
    if arguments.action != "describe":
        raise ConfigError(
            f"fedlit partition: expected describe, found {arguments.action!r}."
            + did_you_mean(arguments.action, ["describe"])
        )
    asked = read("describe", [*(["--config", arguments.config] if arguments.config else []), *keys])
    from fedlit.data.shaping.describe import describe
    from fedlit.run.load import parse
    from fedlit.show.canvas import save_figure
    from fedlit.show.shown import for_terminal

    run = parse(asked)[0]
    data = run.data
    described = describe(data.tables(), data.seed, _measure(data.source))
    print(for_terminal(described))
    name = title(asked.configs)
    if not described.classes:
        print("\nNo picture: it would show the shares of classes.")
        return 0
    folder = Path(arguments.out) if arguments.out else Path(shown(run.root), "partition", name)
    folder.mkdir(parents=True, exist_ok=True)
    files = save_figure(figure_of(described, f"{name}, seed {data.seed}"), folder / "partition")
    print(for_terminal("\nWrote " + ", ".join(map(str, files))))
    return 0


def figure_of(described: Described, title: str) -> Figure:
    """What was described, as a picture."""
    import pandas as pd

    from fedlit.show.partition import partition_figure

    shares = pd.DataFrame(described.shares, list(described.rows), list(described.classes))
    rows = {name: own["train"] for name, own in described.rows.items()}
    distances = described.distances
    if distances is None:
        return partition_figure(shares, rows, title=title)
    return partition_figure(shares, rows, distances.to_whole, distances.mean, title)


def _measure(source: Source) -> Measure:
    """That of the deal, so that the distance is the one that it was dealt by."""
    from fedlit.data.shaping.by_distance import Distance
    from fedlit.data.shaping.distance import Measure
    from fedlit.data.shaping.partition import Partition

    inner: Any = source
    while inner is not None:
        if isinstance(inner, Partition) and isinstance(inner.deal, Distance):
            return inner.deal.measure
        inner = getattr(inner, "source", None)
    return Measure()

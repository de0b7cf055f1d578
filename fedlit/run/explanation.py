"""``fedlit explain``: what a run's clients correct, as pictures, a table, and words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedlit.errors import ConfigError, did_you_mean
from fedlit.explain import PATHS
from fedlit.explain.judge import CORRECTIONS, Judgement, judge
from fedlit.explain.words import ABOUT
from fedlit.files import read_named, write_frames, write_text
from fedlit.show.canvas import save_figure
from fedlit.show.clusters import paths_figure
from fedlit.show.corrections import MOST_HISTOGRAMS, heatmap_figure, histogram_figure
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS

__all__ = ["Explanation", "Paths", "explain", "explain_paths", "read_corrections"]


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """The findings about a run, and where they were written.

    Attributes:
        judged: the corrections.
        epoch: after which they were so.
        files: what was written.
        note: what a person should know besides.
    """

    judged: Judgement
    epoch: int
    files: list[Path]
    note: str = ""

    def parts(self) -> list[str | Grid]:
        """The findings in words, then how many each client has, the most unusual first."""
        counts = self.judged.cells.groupby("client")[["finding", "marked"]].sum()
        counts = counts.sort_values(["finding", "marked"], ascending=False, kind="stable").head(MOST_ROWS)
        rows = [[str(row.Index), str(row.marked), str(row.finding)] for row in counts.itertuples()]
        table = Grid(["client", "marked", "findings"], rows)
        findings = str(self.judged).splitlines()
        more = [f"… and {len(findings) - MOST_ROWS} more: findings.csv"] if len(findings) > MOST_ROWS else []
        note = ["", f"Note: {self.note}"] if self.note else []
        read = "Marked: corrections that lie unusually far from the other clients'."
        return [ABOUT, "", f"After epoch {self.epoch}:", *findings[:MOST_ROWS], *more, "", table, read, *note]


@dataclass(frozen=True, repr=False)
class Paths(Shown):
    """The loss along paths between two clients' models.

    Attributes:
        losses: means over pairs: u as index, a column for each path.
        pairs: how many pairs of clients there were.
        round: of the exchange.
        files: what was written.
    """

    losses: pd.DataFrame
    pairs: int
    round: int
    files: list[Path]

    def parts(self) -> list[str | Grid]:
        """Return what was measured, with a row for each point of the path."""
        about = (
            f"Round {self.round}: the mean over {self.pairs} pairs of clients of the squared distance of outputs to "
            "the second client's, on random inputs, along paths from the first client's model (u = 0) to the second's."
        )
        rows = [
            [f"{u:.3f}", *(f"{value:.4g}" for value in own)]
            for u, own in zip(self.losses.index, self.losses.to_numpy(), strict=True)
        ]
        return [about, "", Grid(["u", *self.losses.columns], rows)]


def explain_paths(run: str | Path, *, out: str | Path | None = None) -> Paths:
    """Draw the loss along the straight and the bent path between two clients' models, as FedGMCC found it in its last
    exchange (Lucchetti et al. 2022, Fig. 2), as PNG and SVG.

    Args:
        run: the folder of a trained run.
        out: where to; ``explain`` in the run's folder if None.
    """
    found = read_named(Path(run) / PATHS)
    target = Path(out) if out is not None else Path(run) / "explain"
    number, pairs = int(found["round"].iloc[0]), len(found[["first", "second"]].drop_duplicates())
    title = f"Round {number}, {pairs} pair{'s' * (pairs > 1)}: mean and standard deviation"
    target.mkdir(parents=True, exist_ok=True)
    files = save_figure(paths_figure(found, title), target / "paths")
    losses = found.pivot_table(index="u", columns="path", values="loss", sort=False).sort_index()
    return Paths(losses, pairs, number, files)


def read_corrections(run: Path, epoch: int | None = None) -> tuple[pd.DataFrame, int]:
    """Read what a run's clients correct (client, part, feature, value), and after which epoch.

    Args:
        run: the run's folder.
        epoch: one that was recorded; the last one if None.

    Raises:
        ConfigError: nothing was recorded, or not after this epoch.
    """
    path = run / CORRECTIONS
    if not path.is_file():
        raise ConfigError(
            f"{run}: expected a trained run whose clients show corrections (such as fedlit.IFedAvg), found no "
            f"{CORRECTIONS}; see covertype_ifedavg.yaml (it is written every board.corrections epochs and at the end)"
        )
    values = read_named(path)
    recorded = sorted(values["epoch"].unique().tolist())
    chosen = recorded[-1] if epoch is None else epoch
    if chosen not in recorded:
        raise ConfigError(f"--epoch: expected one of {', '.join(map(str, recorded))}, found {epoch}")
    return values[values["epoch"] == chosen].drop(columns="epoch").reset_index(drop=True), chosen


def explain(
    run: str | Path,
    *,
    client: str | None = None,
    epoch: int | None = None,
    threshold: float = 2.0,
    out: str | Path | None = None,
) -> Explanation:
    """Write heatmaps (PNG and SVG), ``findings.csv`` (every correction with its marks) and ``findings.md``; of
    corrections alone, which hold no data.

    Args:
        run: the folder of a trained run.
        client: also draw this client's marked features by class, from its own table and no one else's.
        epoch: an epoch of which corrections were recorded; the last one if None.
        threshold: standard deviations from which a correction is marked.
        out: where to; ``explain`` in the run's folder if None.

    Raises:
        ConfigError: no such run, client, or corrections.
    """
    folder = Path(run)
    values, epoch = read_corrections(folder, epoch)
    clients = list(dict.fromkeys(values["client"]))
    if client is not None and client not in clients:
        raise ConfigError(
            f"--client: expected one of {', '.join(clients)}, found {client!r}." + did_you_mean(client, clients)
        )
    judged = judge(values, threshold=threshold)
    target = Path(out) if out is not None else folder / "explain"
    files = [target / "findings.csv", target / "findings.md"]
    words = judged.findings.set_index(["client", "part", "feature"])["words"]
    cells = judged.cells.join(words, on=["client", "part", "feature"])
    write_frames({files[0]: cells})
    text = f"# What the federation corrected, after epoch {epoch}\n\n{ABOUT}\n\n{judged}\n"
    write_text(text, files[1])
    for side in judged.sides:
        files += save_figure(heatmap_figure(judged, side), target / f"corrections_{side}s")
    drawn = _histograms(folder, client, judged, target) if client is not None else []
    note = "" if drawn or client is None else f"no input of {client} is marked, so there are no histograms"
    return Explanation(judged, epoch, files + drawn, note)


def _histograms(run: Path, client: str, judged: Judgement, target: Path) -> list[Path]:
    """The client's own rows by class: its marked inputs, findings and the farthest off first."""
    from fedlit.run.arguments import read
    from fedlit.run.load import parse

    own = judged.cells[(judged.cells["client"] == client) & judged.cells["part"].str.startswith("input")]
    own = own[own["marked"] | own["finding"]].assign(far=own["apart"].abs())
    if not len(own):
        return []
    own = own.sort_values(["finding", "far"], ascending=False).drop_duplicates("feature")
    config = run / "config.yaml"
    if not config.is_file():
        raise ConfigError(f"--client: expected the run's config.yaml, which names its data, found none in {run}")
    table = parse(read("describe", ["--config", str(config)], of_run=True))[0].data.table(client)
    features = own["feature"].tolist()[:MOST_HISTOGRAMS]
    notes = [f"{part} {value:.3g}" for part, value in zip(own["part"], own["value"], strict=True)]
    train = table.splits["train"]
    figure = histogram_figure(
        client, table.features.iloc[train], table.target.iloc[train], features, notes, table.categorical
    )
    return save_figure(figure, target / f"histograms_{client}")

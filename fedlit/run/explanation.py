"""``fedlit explain``: explains a trained run in pictures, tables and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedlit.data.table import check_client
from fedlit.errors import ConfigError
from fedlit.explain import CORRECTIONS, EFFECTS, PATHS
from fedlit.explain.judge import ABOUT, Judgement, judge
from fedlit.files import read_named, write_frames
from fedlit.run.curves import draw_curves
from fedlit.run.effects import effect_lines, effect_pictures
from fedlit.show.canvas import save_figure
from fedlit.show.clusters import paths_figure
from fedlit.show.heatmap import heatmap_figure
from fedlit.show.histograms import Sample, column_of, histogram_figure
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, counted, more


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """The findings about a run, and where they were written.

    Attributes:
        table: the corrections with their marks, the mean losses (with u as index, and a column for
            each path), or the effects.
        files: the files that were written.
        told: the lines and tables to print, from top to bottom.
    """

    table: pd.DataFrame
    files: Sequence[Path]
    told: Sequence[str | Grid]

    def parts(self) -> Sequence[str | Grid]:
        """Return the lines and tables to print."""
        return self.told


def explain(
    run: str | Path,
    *,
    histograms: Sequence[str] = (),
    curves: str | None = None,
    out: str | Path | None = None,
) -> Explanation:
    """Explain a run by what it has recorded, as pictures (PNG and SVG), tables and words: the
    effects of a mixed model or hazard ratios of a Cox model; or corrections
    (:func:`fedlit.explain.judge.judge`), of these alone, which hold no data; or the loss along the
    straight and the bent path between two clients' models, as FedGMCC found it in its last exchange
    (Lucchetti et al. 2022, Fig. 2).

    Args:
        run: the folder of a trained run.
        histograms: clients whose own training rows are drawn too, by class, in the columns in which
            one of their corrections is marked (Roschewitz et al. 2021, Fig. 1 C). This reads their
            tables, and no others where each client has its own file.
        curves: for a run of task survival, what Kaplan–Meier curves of training rows are drawn of:
            ``client``, or a column of all clients, with a log-rank test of its groups that is
            stratified by client. This reads all tables.
        out: where to; ``explain`` in the run's folder if None.

    Raises:
        ConfigError: the run has recorded nothing of these, or has no corrections of one of the
            clients.
    """
    folder = Path(run)
    target = Path(out or folder / "explain")
    if curves is not None:
        from fedlit.run.load import run_of

        data = run_of(folder).data
        data.setup()
        drawn = draw_curves(data, curves, target)
        return Explanation(drawn.table, drawn.files, drawn.lines)
    if histograms and not (folder / CORRECTIONS).is_file():
        expected = f"expected a run whose clients correct columns, found {folder}"
        raise ConfigError(f"--histograms: {expected}; leave --histograms out")
    if (folder / EFFECTS).is_file():
        return _effects(folder, target)
    if (folder / PATHS).is_file() and not (folder / CORRECTIONS).is_file():
        return _paths(folder, target)
    return _corrections(folder, target, histograms)


def _paths(run: Path, target: Path) -> Explanation:
    paths = read_named(run / PATHS)
    number = int(paths["round"].iloc[0])
    pairs = len(paths[["first", "second"]].drop_duplicates())
    title = f"Round {number}, {counted(pairs, 'pair')}: mean and standard deviation"
    files = save_figure(paths_figure(paths, title), target / "paths")
    losses = paths.pivot_table(index="u", columns="path", values="loss", sort=False).sort_index()
    about = (
        f"Round {number}: the mean over {counted(pairs, 'pair')} of clients of the squared "
        "distance of outputs to the second client's, on random inputs, along paths from the first "
        "client's model (u = 0) to the second's."
    )
    rows = []
    for place_on_path, *values in losses.itertuples():
        rows.append([f"{place_on_path:.3f}", *(f"{value:.4g}" for value in values)])
    return Explanation(losses, files, [about, "", Grid(["u", *losses.columns], rows)])


def read_corrections(run: Path) -> tuple[pd.DataFrame, int]:
    """Read what a run's clients correct (client, part, feature, value), and after which epoch.

    Raises:
        ConfigError: nothing was recorded.
    """
    path = run / CORRECTIONS
    if not path.is_file():
        raise ConfigError(
            f"{run}: expected a run that recorded at the end of its training what explain shows: "
            "corrections of columns and outputs (fedlit.IFedAvg, as in covertype_ifedavg.yaml), "
            "effects of a mixed model, hazard ratios of a Cox model, or the loss along paths between "
            "clients' models (FedGMCC); "
            "found none of these. For the feature importance and calibration of a client, add "
            "--client NAME"
        )
    values = read_named(path)
    return values.drop(columns="epoch"), int(values["epoch"].iloc[0])


def _corrections(run: Path, target: Path, clients: Sequence[str]) -> Explanation:
    values, epoch = read_corrections(run)
    for client in clients:
        check_client("--histograms", client, list(dict.fromkeys(values["client"])))
    judged = judge(values)
    files = [target / "findings.csv"]
    keys = ["client", "part", "feature"]
    cells = judged.cells.join(judged.findings.set_index(keys)["words"], on=keys)
    write_frames({files[0]: cells})
    for side in judged.sides:
        files += save_figure(heatmap_figure(judged, side), target / f"corrections_{side}s")
    lines = str(judged).splitlines()
    parts = [
        ABOUT,
        "",
        f"After epoch {epoch}:",
        *lines[:MOST_ROWS],
        *more(lines, "findings: findings.csv"),
    ]
    if clients:
        pictures = _histograms(run, target, judged, clients)
        files += pictures
        if not pictures:
            parts += ["", "Note: no column of these clients is marked, so there are no histograms"]
    return Explanation(cells, files, parts)


def _histograms(run: Path, target: Path, judged: Judgement, clients: Sequence[str]) -> list[Path]:
    """Draw the clients' own rows in the columns in which a correction of theirs is marked, the
    farthest off first.
    """
    from fedlit.run.load import run_of

    cells = judged.cells[
        judged.cells["client"].isin(clients) & judged.cells["part"].str.startswith("input")
    ]
    marked = cells[cells["marked"] | cells["finding"]].assign(far=cells["apart"].abs())
    marked = marked.sort_values(["finding", "far"], ascending=False, kind="stable")
    if not len(marked):
        return []
    data = run_of(run).data
    tables = {client: data.table(client) for client in clients}
    common = set.intersection(*({*map(str, table.features)} for table in tables.values()))
    shared = [name for name in map(str, tables[clients[0]].features) if name in common]
    features: dict[str, str] = {}
    for feature in marked["feature"]:
        column = column_of(feature, shared)
        if column is not None:
            features.setdefault(column, feature)
    if not features:
        return []
    samples = {}
    captions: dict[tuple[str, str], str] = {}
    for client, table in tables.items():
        train = table.splits["train"]
        samples[client] = Sample(table.features.iloc[train], table.target.iloc[train])
        captions |= {
            (client, column): _caption(cells, client, feature)
            for column, feature in features.items()
        }
    figure = histogram_figure(samples, list(features), tables[clients[0]].categorical, captions)
    return save_figure(figure, target / f"histograms_{'_'.join(clients)}")


def _caption(cells: pd.DataFrame, client: str, feature: str) -> str:
    """Say how a client corrects an input: ``age: scale 0.38, shift 0.1``."""
    corrections = cells[(cells["client"] == client) & (cells["feature"] == feature)]
    pairs = zip(corrections["part"].str.removeprefix("input "), corrections["value"], strict=True)
    return f"{feature}: " + ", ".join(f"{kind} {value:.3g}" for kind, value in pairs)


def _effects(run: Path, target: Path) -> Explanation:
    effects = read_named(run / EFFECTS)
    return Explanation(effects, effect_pictures(effects, target), list(effect_lines(effects)))

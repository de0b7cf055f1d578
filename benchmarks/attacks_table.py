"""Tables and the picture of the study of attacks, from what `attacks.py run` has written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.show.canvas import canvas
from fedlit.show.palette import INK, LINE, SCALE, SOFT, text_on

ROOT = Path(__file__).parent.parent
PAGE, PICTURE = ROOT / "docs/studies/attacks.md", ROOT / "docs/pictures/attacks.png"
RULES = {
    "mean": "mean",
    "guarded mean": "mean, guard",
    "norm bound": "norm bound",
    "centered clipping": "centered clipping",
    "median": "median",
    "trimmed mean": "trimmed mean",
    "geometric median": "geometric median",
    "multi-krum": "multi-Krum",
    "krum": "Krum",
}
KINDS = {
    "": "nobody attacks",
    "sign_flip": "sign flip × 4",
    "scaled": "scaled × 100",
    "noise": "noise",
    "alie": "a little is enough",
    "ipm": "inner product × 2",
    "nan": "NaN",
    "replay": "replay",
    "free_rider": "free rider",
    "label_flip": "label flip",
    "backdoor": "back door",
}
HARM = 0.05  # how far below the mean without attack a cell is marked
FEDERATIONS = {"alike": "alike clients (Covertype)", "unlike": "unlike clients (heart sites)"}


def frame_of(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A row a run: of its honest clients the mean and the worst accuracy, and what the guard said of whom.

    Without attack there is a row for each share: of those clients that are honest under attacks of that share.
    """
    drawn = {(own["federation"], own["seed"], own["share"]): own.get("attackers") for own in records if own["kind"]}
    records = [
        {**own, "share": share, "attackers": attackers}
        for own in records
        for (federation, seed, share), attackers in {
            **drawn,
            (own["federation"], own["seed"], own["share"]): own.get("attackers"),
        }.items()
        if (federation, seed) == (own["federation"], own["seed"]) and (share == own["share"] or not own["kind"])
    ]
    rows = []
    for record in records:
        own = {key: record[key] for key in ("federation", "seed", "rule", "kind", "share")}
        if "failed" in record:
            rows.append({**own, "failed": 1.0})
            continue
        attackers = set(record["attackers"])
        honest = [value for name, value in record["accuracy"].items() if name not in attackers]
        named = {name for name, done in record["guarded"].items() if done.get("left_out", 0) + done.get("clipped", 0)}
        named |= set(record["not_finite"])
        watched = {name for name, done in record["guarded"].items() if done.get("watched", 0)} - named
        rows.append(
            {
                **own,
                "failed": 0.0,
                "mean": float(np.mean(honest)),
                "worst": float(np.min(honest)),
                "opened": record["opened"],
                "by client": record["accuracy"],
                "attackers": len(attackers),
                "caught": len(named & attackers),
                "suspected": len(watched & attackers),
                "blamed": len(named - attackers),
                "watched": len(watched - attackers),
            }
        )
    return pd.DataFrame(rows)


def whole(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """Of a share, those seeds that have all rules and attacks, so that cells of a table have the same seeds."""
    own = frame[frame.share == share]
    wanted = len(RULES) * (len(KINDS) if share else 1)
    counts = own.groupby(["federation", "seed"]).size().unstack("federation").fillna(0)
    seeds = counts.index[(counts.reindex(columns=list(FEDERATIONS), fill_value=0) == wanted).all(axis=1)]
    return own[own.seed.isin(seeds)]


def _seeds(frame: pd.DataFrame) -> str:
    seeds = sorted(frame.seed.unique())
    return "Seeds " + ", ".join(map(str, seeds)) + "." if len(seeds) else "Nothing has been run with all rules."


def tables(frame: pd.DataFrame) -> dict[str, str]:
    """Name → the table in Markdown."""
    found = {
        "run": _run(frame),
        "cost": _cost(frame),
        "sites": _sites(frame),
        "doors": _doors(frame),
        "named": _named(frame),
    }
    for federation in FEDERATIONS:
        for share in (0.2, 0.3, 0.4):
            found[f"{federation} {round(100 * share)}"] = _accuracy(frame, federation, share)
    for share in (0.1,):
        part = frame[(frame.share == share) & (frame.kind != "")]
        found[f"share {round(100 * share)}"] = "" if part.empty else "\n\n".join(
            f"{label}, {round(100 * share)} %:\n\n{_accuracy(frame, federation, share)}"
            for federation, label in FEDERATIONS.items()
        )  # fmt: skip
    return found


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def grid(frame: pd.DataFrame, federation: str, share: float, value: str = "mean") -> pd.DataFrame:
    """Attack by rule, means over seeds; the first row is without attack."""
    own = whole(frame, share)
    found = own[own.federation == federation].pivot_table(index="kind", columns="rule", values=value, aggfunc="mean")
    return found.reindex(index=[kind for kind in KINDS if kind in found.index], columns=list(RULES))


def _accuracy(frame: pd.DataFrame, federation: str, share: float) -> str:
    values = grid(frame, federation, share)
    harmed, rows = float(values["mean"].get("", np.nan)) - HARM, []
    for kind, own in values.iterrows():
        cells = ["" if np.isnan(value) else f"**{value:.3f}**" if value < harmed else f"{value:.3f}" for value in own]
        rows.append([KINDS[str(kind)], *cells])
    return f"{_seeds(whole(frame, share))}\n\n{_markdown(['', *RULES.values()], rows)}"


def _cost(frame: pd.DataFrame) -> str:
    rows = []
    for rule, label in RULES.items():
        cells = []
        for federation in FEDERATIONS:
            own = whole(frame, 0.0)
            own = own[(own.federation == federation) & (own.rule == rule)]
            cells += ["" if own.empty else f"{own[value].mean():.3f}" for value in ("mean", "worst")]
        rows.append([label, *cells])
    header = ["rule", "alike: mean", "worst client", "unlike: mean", "worst site"]
    return f"{_seeds(whole(frame, 0.0))}\n\n{_markdown(header, rows)}"


def _sites(frame: pd.DataFrame) -> str:
    """By site, where nobody attacks: each site's clients are tested on the same rows by the same network."""
    own, sites = whole(frame, 0.0), ("cleveland", "hungarian", "switzerland", "va")
    own = own[own.federation == "unlike"]
    rows = [
        [label, *(f"{np.mean([one[f'{site}-1'] for one in part['by client']]):.3f}" for site in sites)]
        for rule, label in RULES.items()
        if not (part := own[own.rule == rule]).empty
    ]
    return _markdown(["rule", *sites], rows)


def _doors(frame: pd.DataFrame) -> str:
    rows = []
    for rule, label in RULES.items():
        cells = []
        for federation in FEDERATIONS:
            for share in (0.0, 0.2, 0.4):
                own = whole(frame, share)
                own = own[(own.federation == federation) & (own.rule == rule)]
                own = own[own.kind == ("backdoor" if share else "")]
                cells.append("" if own.empty else f"{100 * own.opened.mean():.0f} %")
        rows.append([label, *cells])
    header = [f"{federation}: {share} %" for federation in FEDERATIONS for share in (0, 20, 40)]
    told = f"20 %: {_seeds(whole(frame, 0.2)).lower()} 40 %: {_seeds(whole(frame, 0.4)).lower()}"
    return f"{told}\n\n{_markdown(['rule', *header], rows)}"


def _named(frame: pd.DataFrame) -> str:
    own, rows = frame[frame.rule == "guarded mean"], []
    for kind, label in KINDS.items():
        cells = []
        for federation in FEDERATIONS:
            for share in (0.2, 0.4) if kind else (0.0, 0.0):
                part = own[(own.federation == federation) & (own.share == share) & (own.kind == kind)]
                found = [f"{part[key].sum():.0f}" for key in ("caught", "suspected", "attackers", "blamed", "watched")]
                cells.append("" if part.empty else "{} + {} of {}; {} + {}".format(*found))
        rows.append([label, *cells])
    header = [f"{federation}: {share} %" for federation in FEDERATIONS for share in (20, 40)]
    return f"{_seeds(own)}\n\n{_markdown(['attack', *header], rows)}"


def _run(frame: pd.DataFrame) -> str:
    """What has been run, and what has not."""
    rows = []
    for share in sorted(frame.share.unique()):
        part = frame[(frame.share == share) & ((frame.kind == "") == (share == 0))]
        full = part.groupby("seed").size()
        seeds = ", ".join(f"{seed} ({count})" for seed, count in full.items())
        rows.append([f"{round(100 * share)} %", str(len(part)), seeds, f"{part.failed.sum():.0f}"])
    return _markdown(["attackers", "federations", "by seed", "that had to stop"], rows)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Accuracy of honest clients by attack and rule, a square each."""
    with canvas(13, 8.4) as figure:
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        for row, (federation, label) in enumerate(FEDERATIONS.items()):
            panels = [grid(frame, federation, share) for share in (0.2, 0.4)]
            low, high = (float(op([op(own.to_numpy(float)) for own in panels])) for op in (np.nanmin, np.nanmax))
            for column, (share, values) in enumerate(zip((0.2, 0.4), panels, strict=True)):
                axis = axes[row][column]
                shown = axis.imshow(values.to_numpy(float), cmap=SCALE, vmin=low, vmax=high, aspect="auto")
                axis.set_title(f"{label}, {round(100 * share)} % attackers", loc="left", fontsize=10, color=INK)
                axis.set_xticks(range(len(RULES)), list(RULES.values()), rotation=35, ha="right")
                axis.set_yticks(range(len(values)), [KINDS[str(kind)] for kind in values.index])
                axis.axhline(0.5, color=LINE, linewidth=3)
                axis.tick_params(length=0, labelsize=9)
                for spine in axis.spines.values():
                    spine.set_visible(False)
                for y, x in np.argwhere(~np.isnan(values.to_numpy(float))):
                    value = float(values.iat[y, x])
                    ink = text_on(shown.cmap(shown.norm(value)))
                    axis.text(x, y, f"{100 * value:.0f}", ha="center", va="center", fontsize=8, color=ink)
            bar = figure.colorbar(shown, ax=axes[row], fraction=0.03, pad=0.01)
            bar.set_label("balanced accuracy of honest clients, %", color=SOFT, fontsize=9)
            bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
            bar.outline.set_visible(False)
        figure.savefig(path, dpi=100)


def write(records: Sequence[dict[str, Any]]) -> None:
    """Put the tables into the page, each where it says so, and draw the picture."""
    frame = frame_of(records)
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(frame).items():
        # a function: what a table has is no pattern
        page = re.sub(
            rf"(<!-- table: {name} -->\n).*?(<!-- end -->)",
            lambda found, own=table: f"{found[1]}{own}\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    PAGE.write_text(page, encoding="utf-8")
    draw(frame, PICTURE)
    print(f"{len(frame)} federations: wrote {PAGE} and {PICTURE}")

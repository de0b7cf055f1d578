"""Fill the pages of the study `methods` with what it has found.

    fedlit compare methods                                    # hours; start it again to go on
    python benchmarks/methods_page.py lightning_logs/studies/methods

Writes the tables of docs/studies/methods.md and of docs/studies/methods_clients.md, between their marks, and
docs/pictures/methods.png.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedlit.run.catalogue import cards
from fedlit.study.lift import MEAN, WORST
from fedlit.study.parse import load_study
from fedlit.study.seeds import seed_words
from fedlit.study.settle import SETTLED
from fedlit.study.study import BEST_ALONE, Study
from fedlit.tasks import COMPARED

ROOT = Path(__file__).parent.parent
PAGE, CLIENTS = (ROOT / "docs/studies" / name for name in ("methods.md", "methods_clients.md"))
PICTURE = ROOT / "docs/pictures/methods.png"


def filled(page: Path, parts: Mapping[str, str]) -> str:
    """A page with parts in the places of those between its marks."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        assert text.count(begin) == text.count(end) == 1, f"{page} has no place for {name}"
        before, after = text.split(begin)[0], text.split(end)[1]
        text = f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"
    return text


def settled(study: Study, folder: Path) -> str:
    """Which settings were chosen, of each method in each scenario."""
    found: dict[str, dict[str, str]] = {}
    for scenario in study.scenarios:
        path = folder / scenario / SETTLED
        if not path.is_file():
            continue
        frame = pd.read_csv(path)
        for own in frame[frame["chosen"]].itertuples():
            found.setdefault(str(own.method), {})[scenario] = in_short(json.loads(str(own.settings)))
    head = ["method", *study.scenarios]
    lines = [head, ["---"] * len(head)]
    lines += [[study.labels[name], *(own.get(one, "–") for one in study.scenarios)] for name, own in found.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def in_short(settings: Mapping[str, object]) -> str:
    """Settings by the last words of their keys: ``lr 0.1``; where two end alike, ``optimizer.lr 0.1, rule.lr 0.01``."""
    last = Counter(key.rpartition(".")[2] for key in settings)
    short = {key: key.split(".")[-2 if last[key.rpartition(".")[2]] > 1 else -1 :] for key in settings}
    return ", ".join(f"{'.'.join(short[key])} {value}" for key, value in settings.items())


def by_client(study: Study, folder: Path) -> str:
    """Of each scenario and metric, each client's scores and lifts."""
    parts = []
    for scenario in study.scenarios:
        if not (folder / scenario / "lift.csv").is_file():
            continue
        results, lift = (pd.read_csv(folder / scenario / name) for name in ("results.csv", "lift.csv"))
        results = results[results["split"] == "test"]
        parts.append(f"## {scenario}")
        for metric in study.metrics or ():
            own = results[results["metric"] == metric].groupby(["method", "client"])["value"].mean().unstack()
            over = lift[(lift["metric"] == metric) & ~lift["client"].isin([MEAN, WORST])]
            over = over.set_index(["reference", "method", "client"])["mean"]
            head = ["", *own.columns]
            lines = [head, ["---"] * len(head)]
            for name in [name for name in study.labels if name in own.index]:
                cells = []
                for client in own.columns:
                    lifts = [over.get((reference, name, client)) for reference in (study.reference, BEST_ALONE)]
                    told = [COMPARED[metric].text(value, signed=True) for value in lifts if value is not None]
                    more = f"<br>{', '.join(told)}" if told else ""
                    cells.append(f"{COMPARED[metric].text(own.loc[name, client])}{more}")
                lines.append([study.labels[name], *cells])
            table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
            parts += [f"### {scenario}: {COMPARED[metric].label}", table]
    return "\n\n".join(parts)


def missing(study: Study, folder: Path) -> str:
    """What has not been run, and which methods that ship are not in the study."""
    lines = []
    for scenario in study.scenarios:
        path = folder / scenario / "results.csv"
        if not path.is_file():
            lines.append(f"- {scenario}: not run.")
            continue
        results = pd.read_csv(path)
        done = results.groupby("method")["seed"].unique()
        lacking: dict[str, list[str]] = {}
        for name in study.methods:
            if seeds := sorted({*study.seeds} - set(done.get(name, ()))):
                lacking.setdefault(seed_words(seeds), []).append(study.labels[name])
        for seeds, names in lacking.items():
            whose = "every method" if len(names) == len(study.methods) else ", ".join(names)
            lines.append(f"- {scenario}: {whose}, seed {seeds}.")
    used = {method.method for method in study.methods.values()}
    others = [f"`{name}`" for name in cards() if name not in used]
    return "\n".join(
        [*(lines or ["- Every method was run with every seed."]), f"- Not in this study: {', '.join(others)}."]
    )


def main(folder: Path) -> None:
    study = load_study("methods")
    parts = {
        "ranks": (folder / "across.md").read_text(encoding="utf-8"),
        "settled": settled(study, folder),
        "missing": missing(study, folder),
    }
    PAGE.write_text(filled(PAGE, parts), encoding="utf-8")
    CLIENTS.write_text(filled(CLIENTS, {"clients": by_client(study, folder)}), encoding="utf-8")
    shutil.copyfile(folder / "ranks.png", PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

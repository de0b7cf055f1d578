"""The report: one page that needs nothing but itself, from the same sections as the text and the
Markdown; and what it says of who belongs together, from a rule's clusters to tables and files.
"""

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from study.conftest import LR, write_study

from fedlit.answers.shown import summary
from fedlit.explain.clusters import judged
from fedlit.files import read_named
from fedlit.show.canvas import canvas
from fedlit.show.shown import Grid
from fedlit.show.violins import plot_violins
from fedlit.study.compare import Comparison, compare
from fedlit.study.report import sections, times
from fedlit.study.sections import html as page_of
from fedlit.study.sections import markdown
from fedlit.study.tables import cluster_table
from fedlit.tasks import COMPARED


def page(compared: Comparison) -> str:
    return (compared.folder / "report.html").read_text(encoding="utf-8")


def test_it_is_one_file_that_asks_for_nothing(compared: Comparison) -> None:
    links = re.findall(r'(?:src|href|action)="([^"]*)"', page(compared))
    assert links and all(link.startswith("#") for link in links)
    assert (
        "url(http" not in page(compared)
        and "@import" not in page(compared)
        and "<script" not in page(compared)
    )


def test_the_page_shows_no_marks_of_markdown(compared: Comparison) -> None:
    body = page(compared).partition("<body>")[2]
    shown = html.unescape(re.sub(r"<style.*?</style>|<[^>]*>", "", body, flags=re.DOTALL))
    assert "Glossary" in shown and not {"*", "`"} & set(shown)


def test_terminal_markdown_and_page_tell_the_same(compared: Comparison) -> None:
    told = sections(compared)
    text = str(compared)
    written = (compared.folder / "tables.md").read_text("utf-8")
    assert markdown("Title", told).split("\n", 1)[1] == written.split("\n", 1)[1]
    written = written.replace("\\", "")
    for answer in compared.answers:
        assert f"{answer.text}." in text and f"{answer.text}." in written
    first = summary(compared.answers)
    assert f"{first}." in text and first in written and html.escape(first) in page(compared)
    lift = next(own for own in told if own.title.startswith("Lift over"))
    assert lift.table is not None
    for cell in lift.table.to_numpy().ravel():
        assert cell in written
    shown = list(compared.parts())
    (table,) = (place for place, part in enumerate(shown) if isinstance(part, Grid))
    for answer in compared.answers:
        assert shown.index(f"  {answer.text}.") < table


def test_of_many_clients_the_least_and_largest_gains_are_shown(
    compared: Comparison, tmp_path: Path
) -> None:
    """Made of the two clients' results: 40 with the first's, each a little better by the federated
    method."""
    own = compared.collected
    names = [f"c{number:02}" for number in range(40)]
    first = {
        name: frame[frame["client"] == "wine"]
        for name, frame in (("r", own.results), ("c", own.chosen))
    }
    results = [
        frame.assign(
            client=name,
            value=frame["value"].where(frame["method"] != "gl", frame["value"] - 0.001 * place),
        )
        for place, name in enumerate(names)
        for frame in [first["r"]]
    ]
    chosen = pd.concat([first["c"].assign(client=name) for name in names])
    ratio = dict.fromkeys(names, 0.5)
    many = replace(own, results=pd.concat(results), chosen=chosen, ratio=ratio, bootstrap={})
    choose = dict.fromkeys(names, "auroc")
    study = replace(compared.study, metrics=["auroc"], choose=choose)
    found = Comparison.of(study, compared.seeds, many, compared.folder)
    assert found.extremes == ["c39", "c38", "c37", "c02", "c01", "c00"]
    text = page_of("Many", sections(found))
    assert (
        text.count('class="card ') == 6 and "Of 40 clients" in text and "lift.csv has all" in text
    )
    assert text.count("<figure>") == 7 + 1 + 1 and len(text) < 600_000
    assert text.count("AUROC of 40 clients</figcaption>") == 1


SPLIT = {
    "source": {"class_path": "fedlit.Bundled", "init_args": {"clients": ["breast_cancer"]}},
    "clients": 4,
}
FOUR = {"source": {"class_path": "fedlit.Partition", "init_args": SPLIT}}
FLIPPED = {
    "data.source": {"class_path": "fedlit.ConceptShift", "init_args": FOUR},
    "model.client.network.hidden": [8],
    "model.optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
    "exchange.federated": ["*"],
    "exchange.rule": "fedlit.IFCA",
}
APART = {"class_path": "fedlit.Agglomerative", "init_args": {"after": 1, "distance": 1.0}}
POOLED = {
    "data.pool": True,
    "data.align": "both",
    "exchange.federated": [],
    "exchange.rule": "fedlit.Mean",
}
METHODS: dict[str, dict[str, Any]] = {
    "local": {"label": "Local", "set": {"exchange.federated": []}},
    "ifca": {"label": "IFCA <2>"},
    "apart": {"label": "Apart", "set": {"exchange.rule": APART}, "tune": {LR: [0.1, 0.2]}},
    "pooled": {"pooled": True, "set": POOLED},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    methods = {name: {"config": "tiny.yaml", **own} for name, own in METHODS.items()}
    changed: dict[str, Any] = {"seeds": 1, "baselines": [], "bootstrap": 0, "paper": None}
    study = write_study(
        tmp_path_factory.mktemp("clusters"),
        methods=methods,
        scenarios={"flipped": {"set": FLIPPED}},
        **changed,
    )
    return compare(str(study), scenario="flipped", out=study.parent / "out", workers=1, quiet=True)


PLANTED = (("c01", "c03"), ("c02", "c04"))  # as seed 1 draws them
TUNED = ["apart (model.optimizer.lr=0.1)", "apart (model.optimizer.lr=0.2)"]


def cells(found: Comparison) -> dict[str, list[str]]:
    table = cluster_table(found.study, found.collected)
    assert table is not None
    assert list(table) == ["runs", "clusters", "adjusted Rand index", "runs with index 1"]
    return {str(label): cells.tolist() for label, cells in table.iterrows()}


def test_a_run_keeps_its_clusters_and_what_exchanges_cost(found: Comparison) -> None:
    assert not found.failures
    folder = found.folder / "runs" / "ifca" / "seed_1"
    clusters = read_named(folder / "version_0" / "clusters.csv")
    assert clusters["round"].unique().tolist() == [1, 2] and judged(clusters) == PLANTED
    done = json.loads((folder / "DONE").read_text(encoding="utf-8"))
    assert done["exchange"]["rounds"] == 2 and done["exchange"]["seconds"] > 0
    # 30 columns, 8 and 1: whatever a client sends it also receives, in float32, and IFCA sends a
    # model more
    assert done["exchange"]["bytes"] % 4 == 0 and done["exchange"]["bytes"] > 2 * 4 * 2 * 4 * (
        30 * 8 + 8
    )
    local = json.loads(
        (found.folder / "runs" / "local" / "seed_1" / "DONE").read_text(encoding="utf-8")
    )
    assert local["exchange"]["rounds"] == 0


def test_the_study_says_who_belongs_together(found: Comparison) -> None:
    own = pd.read_csv(found.folder / "clusters.csv")
    assert list(own) == ["method", "seed", "client", "cluster", "concept", "adjusted_rand"]
    assert own["method"].unique().tolist() == ["ifca", *TUNED]
    ifca = own[own["method"] == "ifca"].set_index("client")
    assert (
        ifca["cluster"].to_dict()
        == {"c01": 1, "c02": 2, "c03": 1, "c04": 2}
        == ifca["concept"].to_dict()
    )
    assert (own["adjusted_rand"] == 1.0).all()
    rows = cells(found)
    assert list(rows) == ["IFCA <2>", *(name.replace("apart", "Apart") for name in TUNED)]
    assert rows["IFCA <2>"] == ["1", "2.0", "1.000", "100 %"]
    done = json.loads(
        (found.folder / "runs" / "ifca" / "seed_1" / "DONE").read_text(encoding="utf-8")
    )
    cost: Any = times(found).loc["IFCA <2>"]
    assert cost["runs"] == "1" and times(found).loc["Local", "MB an exchange"] == "–"
    assert float(cost["s an exchange"]) == pytest.approx(done["exchange"]["seconds"] / 2, rel=5e-3)
    assert float(cost["MB an exchange"]) == pytest.approx(
        done["exchange"]["bytes"] / 2 / 1e6, rel=5e-3
    )
    text = (found.folder / "tables.md").read_text(encoding="utf-8")
    assert "## Who belongs together" in text
    assert "Who belongs together:" in str(found)


def test_pooled_rows_are_scored_by_client_and_not_joinable(
    found: Comparison,
) -> None:
    assert found.collected.clients == ["c01", "c02", "c03", "c04"] and found.study.candidates == [
        "ifca",
        "apart",
    ]
    scores = pd.read_csv(found.folder / "runs" / "pooled" / "seed_1" / "scores.csv")
    assert set(scores["client"]) == set(found.collected.clients)
    assert (
        found.estimates.query("method == 'pooled' and metric == 'auroc'")["mean"]
        .between(0, 1)
        .all()
    )


def test_the_table_of_several_runs_has_means_and_gaps(found: Comparison) -> None:
    rows = [
        ("ifca", seed, f"c{k}", k, "1", index)
        for seed, index in ((1, 1.0), (2, 0.25))
        for k in range(1, 2 + seed)
    ]
    rows += [(TUNED[0], 1, "c1", 1, "", math.nan)]
    clusters = pd.DataFrame(rows, columns=found.collected.clusters.columns)
    own = cells(replace(found, collected=replace(found.collected, clusters=clusters)))
    assert own == {
        "IFCA <2>": ["2", "2.5", "0.625", "50 %"],
        "Apart (model.optimizer.lr=0.1)": ["1", "1.0", "–", "–"],
    }


def bodies(axes: Axes) -> list[tuple[float, float]]:
    """The least and the largest value that each violin spans."""
    spans = [
        np.asarray(body.get_paths()[0].vertices)[:, 0]
        for body in axes.collections
        if isinstance(body, PolyCollection)
    ]
    return [(float(span.min()), float(span.max())) for span in spans]


def test_violins_show_clients_and_how_medians_vary_over_seeds() -> None:
    """By hand: two seeds, three clients; the medians over clients are 2 and 4, whose standard
    deviation is √2."""
    scores = np.array([[1.0, 2.0, 9.0], [3.0, 4.0, 9.0]])
    with canvas(4, 3) as figure:
        axes = plot_violins(["a", "b"], [scores, scores[:1]], "score", figure.subplots())
        assert bodies(axes) == [(2.0, 9.0), (1.0, 9.0)]
        dots = [
            np.asarray(own.get_offsets())[0].tolist()
            for own in axes.collections
            if isinstance(own, PathCollection)
        ]
        assert dots == [[3.0, 1.0], [2.0, 0.0]]
        (bar,) = (
            own.get_segments()[0] for own in axes.collections if isinstance(own, LineCollection)
        )
        assert bar[:, 0] == pytest.approx([3 - math.sqrt(2), 3 + math.sqrt(2)])


def test_a_missing_score_and_a_diverged_seed_are_in_no_violin(
    compared: Comparison,
) -> None:
    names = [f"c{number:02}" for number in range(12)]
    own = compared.collected
    rows = own.results[own.results["client"] == "wine"]
    every = pd.concat([rows.assign(client=name) for name in names])
    lost = (every["method"] == "gl") & (every["seed"] == 2) & (every["metric"] == "auroc")
    every.loc[lost, "value"] = math.nan
    many = replace(
        own, results=every, chosen=own.chosen[:0], ratio=dict.fromkeys(names, 0.5), bootstrap={}
    )
    metrics = ["auroc", "balanced_accuracy"]
    choose = dict.fromkeys(names, "auroc")
    study = replace(compared.study, metrics=metrics, choose=choose, paper=None)
    found = Comparison.of(study, compared.seeds, many, compared.folder)
    for metric in ("auroc", "balanced_accuracy"):
        (section,) = (
            each for each in sections(found) if each.title == f"{COMPARED[metric].label}, %"
        )
        assert section.draw is not None
        (svg,) = (svg for caption, svg in section.draw().items() if "12 clients" in caption)
        assert "Shared" in svg and "Local" in svg

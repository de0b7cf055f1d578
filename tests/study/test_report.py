"""The report: one page that needs nothing but itself, from the same sections as the text and the Markdown."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fedlit.study.compare import Comparison
from fedlit.study.findings import summary
from fedlit.study.report import sections
from fedlit.study.sections import html as page_of
from fedlit.study.sections import markdown


def page(compared: Comparison) -> str:
    return (compared.folder / "report.html").read_text(encoding="utf-8")


def test_it_is_one_file_that_asks_for_nothing(compared: Comparison) -> None:
    links = re.findall(r'(?:src|href|action)="([^"]*)"', page(compared))
    assert links and all(link.startswith("#") for link in links)
    assert "url(http" not in page(compared) and "@import" not in page(compared) and "<script" not in page(compared)


def test_terminal_markdown_and_page_tell_the_same(compared: Comparison) -> None:
    told, text, written = sections(compared), str(compared), (compared.folder / "tables.md").read_text("utf-8")
    assert markdown("Title", told).split("\n", 1)[1] == written.split("\n", 1)[1]
    for answer in compared.answers:
        assert f"{answer.text}." in text and f"{answer.text}." in written
    first = summary(compared.answers)
    assert text.startswith(f"{first}.") and first in written and html.escape(first) in page(compared)
    lift = next(own for own in told if own.title.startswith("Lift over"))
    assert lift.table is not None
    for cell in lift.table.to_numpy().ravel():
        assert cell in written and cell in text


def test_of_many_clients_those_are_shown_that_gain_least_and_most(compared: Comparison, tmp_path: Path) -> None:
    """Made of the two clients' results: 40 with the first's, each a little better by the federated method."""
    own, names = compared.collected, [f"c{number:02}" for number in range(40)]
    first = {name: frame[frame["client"] == "wine"] for name, frame in (("r", own.results), ("c", own.chosen))}
    results = [
        frame.assign(client=name, value=frame["value"].where(frame["method"] != "gl", frame["value"] - 0.001 * place))
        for place, name in enumerate(names)
        for frame in [first["r"]]
    ]
    chosen = pd.concat([first["c"].assign(client=name) for name in names])
    ratio = dict.fromkeys(names, 0.5)
    many = replace(own, results=pd.concat(results), chosen=chosen, ratio=ratio, bootstrap={})
    study = replace(compared.study, metrics=["auroc"])
    found = Comparison.of(study, compared.seeds, many, compared.folder)
    assert found.extremes == ["c39", "c38", "c37", "c02", "c01", "c00"]
    text = page_of("Many", sections(found))
    assert text.count('class="card ') == 6 and "Of 40 clients" in text and "lift.csv has all" in text
    assert text.count("<figure>") == 7 + 1 and len(text) < 600_000

"""The report: one page that needs nothing but itself, from the same sections as the text and the Markdown."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fedlit.study.answer import answers, summary
from fedlit.study.compare import Comparison
from fedlit.study.lift import MEAN, WORST, Scores, estimates, lifts
from fedlit.study.report import sections
from fedlit.study.sections import html as page_of
from fedlit.study.sections import markdown
from fedlit.study.words import guard_notes

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class _Tags(HTMLParser):
    VOID = ("meta", "br", "wbr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag


def page(compared: Comparison) -> str:
    return (compared.folder / "report.html").read_text(encoding="utf-8")


def test_it_is_one_well_formed_file_that_asks_for_nothing(compared: Comparison) -> None:
    tags = _Tags()
    tags.feed(page(compared))
    assert tags.open == [] and tags.links and all(link.startswith("#") for link in tags.links)
    assert "url(http" not in page(compared) and "@import" not in page(compared) and "<script" not in page(compared)


def test_it_holds_what_a_person_looks_for_and_draws_each_kind_of_picture(compared: Comparison) -> None:
    text = page(compared)
    for word in (
        "Should this client join?", "wine", "breast_cancer", "Best alone", "negative transfer", "Nadeau and Bengio",
        "paper\N{NO-BREAK SPACE}90.00", "(3\N{NO-BREAK SPACE}classes)", '<td class="">106</td>',
        "torch ", "cores", "mean time of a run",
        "Shared &lt;core&gt;", "Would leave the site",
    ):  # fmt: skip
        assert word in text, word
    assert "Shared <core>" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    # scores of two clients and their mean, lifts, columns of one client (the other has too few rows), two calibrations
    assert text.count("<figure>") == 3 + 1 + 1 + 2 == text.count("<svg") - text.count('svg class="bar"')
    value = compared.estimates.set_index(["metric", "method", "client"]).loc[("auroc", "gl", "wine"), "mean"]
    assert f"{100 * value:.2f}" in text


def test_terminal_markdown_and_page_tell_the_same(compared: Comparison) -> None:
    told, text, written = sections(compared), str(compared), (compared.folder / "tables.md").read_text("utf-8")
    assert markdown("Title", told).split("\n", 1)[1] == written.split("\n", 1)[1]
    for card in compared.cards:
        assert f"{card.text}." in text and f"{card.text}." in written
    first = summary(compared.cards)
    assert text.startswith(f"{first}.") and first in written and html.escape(first) in page(compared)
    lift = next(own for own in told if own.title.startswith("Lift over"))
    assert lift.table is not None
    for cell in lift.table.to_numpy().ravel():
        assert cell in written and cell in text


def test_of_many_clients_those_are_shown_that_gain_least_and_most(compared: Comparison, tmp_path: Path) -> None:
    """Made of the two clients' results: 160 with the first's, each a little better by the federated method."""
    own, names = compared.collected, [f"c{number:03}" for number in range(160)]
    first = {name: frame[frame["client"] == "wine"] for name, frame in (("r", own.results), ("c", own.chosen))}
    results = [
        frame.assign(client=name, value=frame["value"].where(frame["method"] != "gl", frame["value"] - 0.001 * place))
        for place, name in enumerate(names)
        for frame in [first["r"]]
    ]
    chosen = pd.concat([first["c"].assign(client=name) for name in names])
    ratio = dict.fromkeys(names, 0.5)
    many = replace(own, results=pd.concat(results), chosen=chosen, ratio=ratio, bootstrap={}, explained={})
    study, scores = replace(compared.study, leave_one_out=False, metrics=["auroc"]), Scores(many)
    of_scores, of_lifts = estimates(study, scores), lifts(study, scores)
    found = replace(
        compared, study=study, collected=many, estimates=of_scores, lift=of_lifts, left_out=pd.DataFrame(),
        answers=answers(study, many, of_scores, of_lifts), predicted={},
    )  # fmt: skip
    assert found.extremes == ["c159", "c158", "c157", "c002", "c001", "c000"]
    text = page_of("Many", sections(found))
    assert text.count('class="card ') == 6 and "Of 160 clients" in text and "lift.csv has all" in text
    assert text.count("<figure>") == 7 + 1 and len(text) < 600_000


def test_of_one_client_there_is_no_mean_and_no_worst(compared: Comparison) -> None:
    alone = replace(compared, collected=replace(compared.collected, ratio={"wine": 0.5}))
    assert alone.clients == ["wine"] == alone.clients_of(alone.scores[0])
    assert compared.clients == ["breast_cancer", "wine", MEAN, WORST]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_nothing_is_cut_off_on_a_phone(compared: Comparison, tmp_path: Path) -> None:
    probe = (
        "<script>onload = () => parent.postMessage(String([...document.querySelectorAll('main *')].filter("
        "e => !e.closest('.scroll, svg') && e.getBoundingClientRect().right > innerWidth + 1).length), '*')</script>"
    )
    (tmp_path / "report.html").write_text(page(compared).replace("</body>", f"{probe}</body>"), encoding="utf-8")
    frame = "<title></title><script>onmessage = event => { document.title = event.data; };</script>"
    frame += '<iframe src="report.html" width="390" height="800" style="border:0"></iframe>'
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    command = [str(CHROMIUM), *options, f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "<title>0</title>" in done.stdout, done.stderr


def test_who_was_watched_has_one_line_and_who_was_left_out_one_for_each_method() -> None:
    def row(method: str, seed: int, **found: dict[str, int]) -> dict[str, Any]:
        return {"method": method, "seed": seed, "guarded": found or None}

    records = [
        row("fedavg", 1, east={"exchanges": 9, "left_out": 2, "watched": 1}, west={"exchanges": 9, "watched": 4}),
        row("fedavg", 2, east={"exchanges": 9, "left_out": 1}),
        row("fedavg", 3),
        row("fedper", 1, east={"exchanges": 9, "watched": 1}, west={"exchanges": 9, "watched": 2}),
        row("fedper", 3, west={"exchanges": 9, "not_finite": 1}),
    ]
    study = SimpleNamespace(labels={"fedavg": "FedAvg", "fedper": "FedPer"})
    notes = guard_notes(study, SimpleNamespace(records=pd.DataFrame(records)))  # type: ignore[arg-type]
    starts = ["FedAvg, seed 1:2: east: left out of 3 of its 18", "FedPer, seed 3: west: left out of 1 of its 9",
              "west: watched in 6", "east: watched in 1"]  # fmt: skip
    assert [note.startswith(start) for note, start in zip(notes, starts, strict=True)] == [True] * 4

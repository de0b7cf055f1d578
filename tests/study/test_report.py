"""The report: it needs nothing but itself, and a real browser shows it."""

from __future__ import annotations

import html
import itertools
import json
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

from fedlit.show.palette import CLASSES, CLUSTERS, METHODS, THEME, contrast, text_on
from fedlit.study.compare import Comparison
from fedlit.study.figures import looks
from fedlit.study.lift import MEAN, WORST
from fedlit.study.method import Method
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study
from fedlit.study.words import guard_notes
from fedlit.tasks import TASKS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

# Written into a copy of the page; what it finds stands in the document's title afterwards.
PROBE = """<script>
window.addEventListener('load', () => {
  const wide = [...document.querySelectorAll('main *')].filter(
    e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > innerWidth + 1);
  const shown = () => [...document.querySelectorAll('.tabs > section')].map(e => getComputedStyle(e).display).join();
  const first = shown();
  document.querySelectorAll('.tabs > label')[1].click();
  const second = shown();
  const figures = [...document.querySelectorAll('#s2 figure svg')].map(e => e.getBoundingClientRect());
  // the size of a label as it is shown: its own, times what the figure is scaled by
  const text = [...document.querySelectorAll('#s2 figure svg text')].map(e => {
    const scale = e.getScreenCTM();
    return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(scale.a, scale.b);
  });
  const words = [...document.querySelectorAll('main *')].filter(
    e => !e.closest('svg') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const table = document.querySelector('#s2 .scroll');
  const left = () => table.querySelector('tbody th').getBoundingClientRect().left;
  const before = left();
  table.scrollLeft = 60;
  const moved = table.scrollLeft;
  const found = JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, wide: wide.length, first, second,
    figures: figures.length, smallest: Math.min(...figures.map(r => Math.min(r.width, r.height))),
    text: Math.min(...text), words: Math.min(...words.map(e => parseFloat(getComputedStyle(e).fontSize))),
    moved, stays: left() === before, answers: document.querySelectorAll('#answers .card').length,
    requests: performance.getEntriesByType('resource').length});
  if (parent === window) document.title = found; else parent.postMessage(found, '*');
});
</script></body>"""


class _Tags(HTMLParser):
    VOID = ("meta", "input", "br", "wbr")

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


def test_it_holds_what_a_person_looks_for(compared: Comparison) -> None:
    text = page(compared)
    for word in (
        "Should this client join?", "wine", "breast_cancer", "Best alone", "negative transfer", "Nadeau and Bengio",
        "paper\N{NO-BREAK SPACE}90.00", "Predicted: breast_cancer: target (2 classes); wine: target (3 classes)",
        "wine: 106 / 27 / 45",
        "torch ", "cores", "mean time of a run", "max_epochs: 2", "Shared &lt;core&gt;",
    ):  # fmt: skip
        assert word in text, word
    assert "Shared <core>" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    # per metric: two clients and the mean, two forest plots (the method, and the best), two learning curves
    # and what predictions rest on: columns of one client (the other has too few rows), calibration of both
    assert text.count("<figure>") == 3 * (3 + 2 + 2) + 1 + 2 == text.count("<svg") - text.count('svg class="bar"')
    value = compared.estimates.set_index(["metric", "method", "client"]).loc[("auroc", "gl", "wine"), "mean"]
    assert f"{100 * value:.2f}" in text


def styles(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The page's variables, on light and on dark."""
    blocks = re.findall(r":root \{(.*?)\}", text)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks)
    return light, dark


def test_all_text_has_contrast_on_light_and_on_dark(compared: Comparison) -> None:
    text = page(compared)
    themes = styles(text)
    css, body = text.split("</style>", 1)
    inks = set(re.findall(r"[; {]color: var\(--([\w-]+)\)", css)) - {"paper"}  # of a chosen tab: paper on ink
    labels = re.findall(r"<text style=\"([^\"]*)\"", body)
    inks |= {found[1] for label in labels if (found := re.search(r"fill: var\(--([\w-]+)\)", label))}
    assert inks == {"ink", "soft", "good", "bad"} and labels
    assert all("fill: var(" in label for label in labels)  # none keeps a colour that dark paper swallows
    for theme in themes:
        assert set(theme) == set(THEME)
        for ink, paper in itertools.product(inks, ("paper", "page")):
            assert contrast(theme[ink], theme[paper]) >= 4.5, (ink, paper)
        for mark in (name for name in theme if name.startswith("method-") or name in ("local", "alone", "best")):
            assert contrast(theme[mark], theme["paper"]) >= 3, mark  # of what is drawn
    assert 'style="color' not in body  # colours of marks have too little contrast for text
    assert not re.findall(r"(?:fill|stroke): #(?!000000|ffffff)\w+", body)  # all other colours follow the theme


def test_no_colour_has_two_meanings() -> None:
    names = [light for light, _ in THEME.values()]
    everything = [*names, *CLUSTERS, *CLASSES]
    assert len(set(everything)) == len(everything) and set(METHODS) < set(names)
    assert len({dark for _, dark in THEME.values()}) == len(THEME)
    methods = {f"m{number}": Method("quickstart.yaml") for number in range(16)}
    study = Study({"local": Method("quickstart.yaml"), **methods}, seeds=[1]).for_tasks({"a": TASKS["classification"]})
    drawn = looks(study)
    assert len({(drawn[name].colour, drawn[name].line) for name in methods}) == 16
    assert len({(drawn[name].colour, drawn[name].mark) for name in methods}) == 16  # of dots, which have no line
    assert not {drawn[name].colour for name in methods} & {drawn[name].colour for name in drawn if name not in methods}
    assert len({drawn["m0"].mark, drawn[BEST_ALONE].mark, drawn[BEST_FEDERATED].mark}) == 3


def test_text_in_coloured_cells_can_be_read() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.01
    )
    for colour in [*CLASSES, *CLUSTERS, *(f"#{grey:02x}{grey:02x}{grey:02x}" for grey in range(256))]:
        assert contrast(text_on(colour), colour) >= 4.5, colour
    assert all(text_on(colour) == "#000000" for colour in CLUSTERS)  # their letters are black


def test_of_one_client_there_is_no_mean_and_no_worst(compared: Comparison) -> None:
    alone = replace(compared, collected=replace(compared.collected, ratio={"wine": 0.5}))
    assert alone.clients == ["wine"] == alone.clients_of(alone.scores[0])
    assert compared.clients == ["breast_cancer", "wine", MEAN, WORST]


def test_what_failed_takes_no_colour(compared: Comparison) -> None:
    study, method = compared.study, compared.study.methods["gl"]
    study = replace(study, methods={"local": study.methods["local"], "boom": method, "gl": method})
    found = replace(compared, study=study)
    assert list(found.finished.methods) == ["local", "gl"]
    assert looks(found.finished)["gl"] == looks(compared.study)["gl"] != looks(study)["gl"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 390, 360])
def test_a_browser_shows_it_on_a_desk_and_on_a_phone(compared: Comparison, width: int, tmp_path: Path) -> None:
    copy = tmp_path / "report.html"
    copy.write_text(page(compared).replace("</body>", PROBE), encoding="utf-8")
    if width < 500:  # no window is narrower, a frame can be
        listen = "<title></title><script>onmessage = event => { document.title = event.data; };</script>"
        frame = f'{listen}<iframe src="{copy.name}" width="{width}" height="800" style="border:0"></iframe>'
        copy = tmp_path / "frame.html"
        copy.write_text(frame, encoding="utf-8")
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", copy.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stderr
    found = json.loads(html.unescape(title[1]))
    assert found["width"] == width and found["page"] <= width and found["wide"] == 0
    assert found["first"] == "block,none,none" and found["second"] == "none,block,none"
    assert found["figures"] == 7 and found["smallest"] > 100 and min(found["text"], found["words"]) >= 12
    assert found["stays"] and (found["moved"] > 0) == (width < 500)  # the first column, whatever is scrolled
    assert found["answers"] == 2 and found["requests"] == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
def test_it_is_short_on_paper(compared: Comparison, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path / 'profile'}", f"--print-to-pdf={paper}"]
    report = (compared.folder / "report.html").as_uri()
    subprocess.run([*command, "--no-pdf-header-footer", report], capture_output=True, timeout=120, check=True)
    assert (
        2 <= len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())) <= 4
    )  # three scores: all of one, of two the numbers


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
    collected = SimpleNamespace(records=pd.DataFrame(records))
    assert guard_notes(study, collected) == [  # type: ignore[arg-type]
        "FedAvg, seed 1:2: east: left out of 3 of its 18 exchanges (its updates were far from the others'), "
        "watched in 1",
        "FedPer, seed 3: west: left out of 1 of its 9 exchanges (not finite)",
        "west: watched in 6 exchanges (by method: FedAvg 4, FedPer 2), and took part; the log of a run says why",
        "east: watched in 1 exchange (by method: FedPer 1), and took part; the log of a run says why",
    ]

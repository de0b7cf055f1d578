"""The report: it needs nothing but itself, and a real browser shows it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedlit.study.compare import Comparison

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
  const text = [...document.querySelectorAll('#s2 figure svg text')].map(e => e.getBoundingClientRect().height);
  const found = JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, wide: wide.length, first, second,
    figures: figures.length, smallest: Math.min(...figures.map(r => Math.min(r.width, r.height))),
    text: Math.min(...text), answers: document.querySelectorAll('#answers .card').length,
    requests: performance.getEntriesByType('resource').length});
  if (parent === window) document.title = found; else parent.postMessage(found, '*');
});
</script></body>"""


class _Tags(HTMLParser):
    VOID = ("meta", "input", "br")

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
        "Should this client join?", "wine", "breast_cancer", "Best go-alone", "negative transfer", "Nadeau and Bengio",
        "paper 90.00", "torch ", "cores", "mean time of a run", "max_epochs: 2", "Shared &lt;core&gt;",
    ):  # fmt: skip
        assert word in text, word
    assert "Shared <core>" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    # per metric: two clients and the mean, two forest plots (the method, and the best), two learning curves
    assert text.count("<figure>") == 3 * (3 + 2 + 2) == text.count("<svg")
    value = compared.estimates.set_index(["metric", "method", "client"]).loc[("auroc", "gl", "wine"), "mean"]
    assert f"{100 * value:.2f}" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 360])
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
    assert found["figures"] == 7 and found["smallest"] > 100 and found["text"] > 7
    assert found["answers"] == 2 and found["requests"] == 0

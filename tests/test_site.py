"""The documentation site, built as ``make docs`` builds it, and the Markdown it is made of as a code host shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pages import PAGES, ROOT, read

import fedlit

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")
RAW = re.compile(r":(?:class|func|meth|attr|data|exc|mod):|``|>>> |^Example::?$|<autoref", re.MULTILINE)
"""What would be markup of docstrings that nobody turned into HTML."""


class Page(HTMLParser):
    """What a page of the site loads, links to and can be linked at, and its text outside of code.

    Args:
        path: the HTML file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.code = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.anchors.add(own.get("id", ""))
        if tag == "a":
            self.links.append(own.get("href", ""))
        elif tag != "meta":
            self.loads += [own[name] for name in ("src", "href", "data", "srcset") if name in own]
        self.code += tag in ("pre", "code", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in ("pre", "code", "script", "style")

    def handle_data(self, data: str) -> None:
        self.text += "" if self.code else data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    pytest.importorskip("zensical", reason="the site is built with the extra `docs`")
    root = tmp_path_factory.mktemp("site")
    for folder in ("docs", "fedlit"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("zensical.toml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / file, root / file)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages of the site by their path in it."""
    return {str(path.relative_to(site)): Page(path) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_outside(pages: dict[str, Page]) -> None:
    outside = {url for page in pages.values() for url in page.loads if re.match(r"\w+:|//", url)}
    assert not outside
    assert all(any(url.endswith(".css") for url in page.loads) for page in pages.values())  # they were looked at


def test_every_link_of_the_site_leads_somewhere(pages: dict[str, Page], site: Path) -> None:
    dead = []
    for name, page in pages.items():
        for link in page.links if name != "404.html" else []:  # it is served at any depth
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"\w+:", target):
                continue
            path = (site / name).parent / target if target else site / name
            there = pages.get(str(path.resolve().relative_to(site.resolve())))
            if not path.exists() or (anchor and there and anchor not in there.anchors):
                dead.append(f"{name}: {link}")
    assert not dead


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """By the inventory that the builder writes of what it rendered."""
    head, _, body = (site / "objects.inv").read_bytes().partition(b"using zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2")
    rendered = {line.split(" ", 1)[0] for line in zlib.decompress(body).decode().splitlines()}
    assert {f"fedlit.{name}" for name in fedlit.__all__} <= rendered


def test_docstrings_are_rendered(pages: dict[str, Page]) -> None:
    raw = {name: RAW.findall(page.text) for name, page in pages.items() if name.startswith("api/")}
    assert len(raw) > 5
    assert not any(raw.values()), raw


def test_every_page_is_in_the_navigation() -> None:
    def files(entries: list[Any]) -> list[str]:
        inside = [next(iter(entry.values())) if isinstance(entry, dict) else entry for entry in entries]
        return [file for own in inside for file in (files(own) if isinstance(own, list) else [own])]

    named = files(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])
    assert sorted(f"docs/{file}" for file in named) == [page for page in PAGES if page != "README.md"]


def anchors_of(page: str) -> set[str]:
    """Those that a code host gives a page's headings."""
    text = re.sub(r"^ *```.*?^ *```", "", read(page), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+?)\s*$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_the_markdown_leads_somewhere(page: str) -> None:
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", read(page), flags=re.MULTILINE | re.DOTALL)
    targets = LINK.findall(text) + [one or other for one, other in PICTURE.findall(text)]
    dead = []
    for target in targets:
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        name = str(path.resolve().relative_to(ROOT))
        if not path.exists() or (anchor and name in PAGES and anchor not in anchors_of(name)):
            dead.append(target)
    assert not dead


def test_the_readme_shows_wherever_it_is_read() -> None:
    """Also where only its text is, as on a package index: a picture has words that stand for it."""
    assert "![](" not in read("README.md")

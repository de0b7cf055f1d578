"""The documentation site, built as ``make docs`` builds it: ``--strict`` finds dead links."""

import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from pages import PAGES, ROOT, read

import fedlit

LOADED = re.compile(r"<(?!a\b|meta\b)\w[^>]*?\s(?:src|href|data|srcset)=\"?([^\s\">]+)")
CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
RAW = re.compile(r":(?:class|func|meth|attr|data|exc|mod):|``|&gt;&gt;&gt; |^Example::?$|<autoref", re.MULTILINE)
"""What would be markup of docstrings that nobody turned into HTML."""


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


@pytest.mark.full  # building takes longer than most rooms' tests
def test_nothing_is_loaded_from_outside_and_docstrings_are_rendered(site: Path) -> None:
    texts = {str(path.relative_to(site)): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    loads = {name: LOADED.findall(text) for name, text in texts.items()}
    assert all(any(".css" in url for url in urls) for urls in loads.values())  # they were looked at
    assert not {url for urls in loads.values() for url in urls if re.match(r"\w+:|//", url)}
    raw = {name: RAW.findall(CODE.sub("", text)) for name, text in texts.items() if name.startswith("api/")}
    assert len(raw) > 5 and not any(raw.values()), raw


@pytest.mark.full
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """By the inventory that the builder writes of what it rendered."""
    head, _, body = (site / "objects.inv").read_bytes().partition(b"using zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2")
    rendered = {line.split(" ", 1)[0] for line in zlib.decompress(body).decode().splitlines()}
    assert {f"fedlit.{name}" for name in fedlit.__all__} <= rendered


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r'"([\w/-]+\.md)"', read("zensical.toml"))
    assert sorted(f"docs/{file}" for file in named) == [page for page in PAGES if page != "README.md"]

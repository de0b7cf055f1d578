"""The documentation: every block that can run runs as it stands there (``pages.py`` says how), and
the notebook; the site is built as ``make docs`` builds it, where ``--strict`` finds dead links.
"""

import multiprocessing
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decision
import pictures
import pytest
from browser import browser
from matplotlib.image import imread
from notebooks import made
from pages import PAGES, ROOT, blocks_of, read, run

import fedlit
from fedlit.run.catalogue import cards

BLOCKS = {page: blocks_of(page, read(page)) for page in PAGES}
RUNNABLE = [
    page
    for page, blocks in BLOCKS.items()
    if any(not block.reason and block.language != "text" for block in blocks)
]

FIRST = ("README.md", "docs/tutorial.md")
"""What a newcomer runs; the other pages take some minutes, and are ``full``."""

_RUN = "lightning_logs/{}/version_0/{}"
_STUDY = "lightning_logs/studies/{}"
LEFT = {
    "README.md": {_RUN.format("mine", "config.yaml"): "north.csv"},
    "docs/tutorial.md": {
        _RUN.format("mine", "test.csv"): "south",
        _STUDY.format("hospitals/report.html"): "Three made-up hospitals of one disease.",
    },
    "docs/how-to/study.md": {
        _STUDY.format("mixed_study/lift.csv"): "without_trees",
        _STUDY.format("joining/leave_one_out.csv"): "west,(others)",
    },
    "docs/how-to/best.md": {_RUN.format("mixed", "mixture.json"): "federated"},
    "docs/how-to/method.md": {
        _RUN.format(name, "config.yaml"): f"class_path: {own}"
        for name, own in {
            "proximal": "mymethod.Proximal",
            "quickstart+proximal": "mymethod.Proximal",
            "median": "myrule.Median",
            "counted": "counted.Count",
            "named": "named.Named",
        }.items()
    },
}
"""What the commands of a page must leave behind: page → file → what stands in it."""


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """Commands need not import first. Arrow's allocator would start a thread when it is imported,
    which no fork has."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
        }.items():
            patch.setenv(name, value)
        imported = [
            "fedlit.__main__",
            "fedlit.cli.runs",
            "fedlit.cli.study",
            "fedlit.nn",
            "fedlit.study.search",
        ]
        multiprocessing.get_context("forkserver").set_forkserver_preload(imported)
        yield


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page in FIRST else [pytest.mark.full]) for page in RUNNABLE],
)
def test_every_block_runs(page: str, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    for block in BLOCKS[page]:
        run(block, folder)
    for file, words in LEFT.get(page, {}).items():
        assert words in (folder / file).read_text(encoding="utf-8"), file


def test_the_files_that_the_design_names_are_there() -> None:
    missing = []
    named = 0
    for row in (ROOT / "docs" / "design.md").read_text("utf-8").splitlines():
        folder = ""
        for name in re.findall(r"`([\w/]+\.(?:py|json))`", row) if row.startswith("| ") else ():
            folder = name.rpartition("/")[0] if "/" in name else folder
            named = named + 1
            places = (ROOT / name, ROOT / "fedlit" / name, ROOT / "fedlit" / folder / name)
            missing += [] if any(place.is_file() for place in places) else [name]
    assert named > 80 and missing == []


FILE = ROOT / "docs" / "notebook.ipynb"


@pytest.fixture
def notebook() -> Any:
    return pytest.importorskip("nbformat", reason="notebooks need the extra `dev`").read(
        FILE, as_version=4
    )


def test_the_notebooks_outputs_name_no_folder_of_a_machine(
    notebook: Any,
) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(cell.outputs for cell in cells)
    kinds = {kind for cell in cells for output in cell.outputs for kind in output.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    assert not any(
        folder in FILE.read_text(encoding="utf-8") for folder in ("/home/", "/tmp/", "/root/")
    )


def test_the_page_of_the_notebook_is_as_it_is_made() -> None:
    for path, content in made().items():
        assert path.read_bytes() == content, f"run python tests/{made.__module__}.py: {path.name}"


def test_the_picture_that_decides_is_current() -> None:
    assert decision.PICTURE.read_text(encoding="utf-8") == decision.picture(), (
        "run python tests/decision.py"
    )
    assert {name for step in decision.STEPS for name in step.methods} <= set(cards())


@pytest.mark.full
@pytest.mark.parametrize("name", pictures.DRAWN)
def test_a_study_s_picture_shows_the_tables_of_its_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its pixels, of which another version of Matplotlib may shade a few otherwise."""
    stored = imread(pictures.PICTURES / f"{name}.png")
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    pictures.DRAWN[name]()
    drawn = imread(tmp_path / f"{name}.png")
    assert drawn.shape == stored.shape
    assert abs(drawn - stored).mean() < 0.002, "run python tests/pictures.py"


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_the_notebook_runs(notebook: Any, tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient", reason="notebooks need the extra `dev`")
    for cell in notebook.cells:
        cell.source = cell.source.replace('seeds="1:5"', 'seeds="1:1"')
    client.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert "probability_yes" in str(notebook.cells[-1].outputs)


LOADED = re.compile(r"<(?!a\b|meta\b)\w[^>]*?\s(?:src|href|data|srcset)=\"?([^\s\">]+)")


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
def test_nothing_is_loaded_from_outside(site: Path) -> None:
    loads = [LOADED.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")]
    assert all(any(".css" in url for url in urls) for urls in loads)  # they were looked at
    assert not {url for urls in loads for url in urls if re.match(r"\w+:|//", url)}


SEARCH = (
    "[...document.querySelectorAll('*')].map(host => host.shadowRoot).find(inside => "
    "inside?.querySelector('input'))"
)


@pytest.mark.full
def test_search_from_a_folder_keeps_what_is_typed(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.open(site / "index.html")
        tab.wait(SEARCH)
        tab.value("document.querySelector('.md-search__button').click()")
        tab.wait(f"{SEARCH}.activeElement?.matches('input')")
        for letter in "fedprox":
            tab.value(f"globalThis.before = {SEARCH}.querySelector('ol').innerHTML")
            tab.type(letter)
            # each answer marks what was typed
            tab.wait(f"{SEARCH}.querySelector('ol').innerHTML !== before")
        assert tab.value(f"{SEARCH}.querySelector('input').value") == "fedprox"
        assert "fedprox" in tab.value(f"{SEARCH}.querySelector('ol').textContent").lower()


@pytest.mark.full
def test_names_in_tables_are_not_broken(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.open(site / "methods.html")
        assert tab.value("document.querySelectorAll('td a code').length") > 40
        assert (
            tab.value(
                "[...document.querySelectorAll('td code')].filter(c => c.getClientRects().length > "
                "1).length"
            )
            == 0
        )


LONG = ("changelog.html", "keys.html", "papers.html", "404.html")
"""Pages that are searched, not read; so are those of the API."""


@pytest.mark.full
def test_no_page_is_longer_than_sixteen_screens(site: Path, tmp_path: Path) -> None:
    pages = [
        page for page in site.rglob("*.html") if page.name not in LONG and page.parent.name != "api"
    ]
    heights = {}
    with browser(tmp_path) as tab:
        tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        for page in pages:
            tab.open(page)
            heights[page.relative_to(site)] = tab.value("document.documentElement.scrollHeight")
    assert len(heights) > 80
    assert {page: height for page, height in heights.items() if height > 15_000} == {}


@pytest.mark.full
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    """By the inventory that the builder writes of what it rendered."""
    head, _, body = (site / "objects.inv").read_bytes().partition(b"using zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2")
    rendered = {line.split(" ", 1)[0] for line in zlib.decompress(body).decode().splitlines()}
    assert {f"fedlit.{name}" for name in fedlit.__all__} <= rendered  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r'"([\w/-]+\.md)"', read("zensical.toml"))
    assert sorted(f"docs/{file}" for file in named) == [
        page for page in PAGES if page != "README.md"
    ]

"""What is printed keeps to the width of a terminal, a real pseudo-terminal, and loses nothing by
it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from federations import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.run.plan import Plan
from fedlit.show.heatmap import confusion_figure
from fedlit.show.shown import Grid, Part, Shown, for_terminal
from fedlit.show.text import Verbatim, definitions, in_markdown, text_table, wrap
from fedlit.study.sections import Section
from fedlit.study.sections import html as report_of
from fedlit.tasks import Classification
from fedlit.tasks.scores import LOSS, Score
from fedlit.train.results import Results

METRICS = (
    "loss",
    "auroc",
    "auprc",
    "balanced_accuracy",
    "accuracy",
    "f1",
    "weighted_f1",
    "rmse",
    "classes",
)
NAMES = [f"hospital_universitario_de_la_paz_{number:02d}" for number in range(12)]


@pytest.fixture
def on_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int, Callable[[], object]], list[str]]:
    """Do something with standard output on a pseudo-terminal of so many columns; the lines that it
    printed."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run(columns: int, work: Callable[[], object]) -> list[str]:
        controller, end = pty.openpty()
        # Rich asks the process's own streams for their width, not this one.
        monkeypatch.setenv("COLUMNS", str(columns))
        written: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # how Linux says that the other end was closed
                while part := os.read(controller, 65536):
                    written.append(part)

        reader = threading.Thread(target=read)
        reader.start()
        with os.fdopen(end, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            patch.setattr(sys, "stderr", stream)
            work()
        reader.join()
        os.close(controller)
        return b"".join(written).decode().replace("\r\n", "\n").replace("\r", "\n").splitlines()

    return run


def results(names: list[str]) -> Results:
    rng = np.random.default_rng(0)
    scores = {name: dict(zip(METRICS, rng.random(9).tolist(), strict=True)) for name in names}
    middle = dict.fromkeys(METRICS, 0.5)
    return Results(
        "test",
        1,
        scores,
        dict.fromkeys(names, 123456),
        {"mean": middle, "worst": middle, "worst_client": {}, "counted": {}},
        {names[0]: 7},
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    run = make_run(
        tmp_path_factory.mktemp("plan"), clients=(*NAMES, "fir"), exchange={"federated": ["core"]}
    )
    return run.describe()


@pytest.mark.parametrize("columns", [40, 80])
def test_wide_tables_keep_to_the_terminal_and_lose_no_number(
    columns: int, plan: Plan, on_terminal: Callable[..., list[str]]
) -> None:
    for shown in (results(NAMES), plan):
        lines = on_terminal(columns, lambda shown=shown: print(for_terminal(shown)))
        # str() is as wide as it is
        assert max(map(len, lines)) <= columns < max(map(len, str(shown).splitlines()))
        numbers = re.compile(r"\b\d[\d.,]*\d\b")
        table = next(part for part in shown.parts() if isinstance(part, Grid))
        printed = set(numbers.findall("\n".join(lines)))
        assert {
            number for row in table.rows for cell in row[1:] for number in numbers.findall(cell)
        } <= printed


# of clients of several tasks the loss is compared
@pytest.mark.parametrize("main", [Classification.scores[0], LOSS])
def test_brief_results_have_each_score_once(main: Score) -> None:
    grid = next(
        part
        for part in replace(results(NAMES), main=main).brief().parts()
        if isinstance(part, Grid)
    )
    assert grid.header == ["test:", "rows", *dict.fromkeys([main.name, "loss", "accuracy"])]


names = st.text("abcdefgh", min_size=1, max_size=11)
cells = st.integers(0, 10**7).map(str)


@settings(deadline=None)
@given(st.integers(1, 8).flatmap(lambda n: st.tuples(
    st.lists(names, min_size=n + 1, max_size=n + 1),
    st.lists(st.tuples(names, *[cells] * n).map(list), min_size=1, max_size=4),
)), st.integers(26, 60))  # fmt: skip
def test_blocks_of_a_table_are_the_table(
    table: tuple[list[str], list[list[str]]], width: int
) -> None:
    header, rows = table
    text = text_table(header, rows, width)
    blocks = [[line.split() for line in block.splitlines()] for block in text.split("\n\n")]
    # put together again, without the first column's repetitions
    again = [
        [*row, *(cell for own in blocks[1:] for cell in own[n][1:])]
        for n, row in enumerate(blocks[0])
    ]
    assert again == [header, *rows] and max(map(len, text.splitlines())) <= width


def test_long_text_is_broken_and_whole_when_put_together() -> None:
    names = ["x" * 15 + letter + "x" * 15 for letter in "ab"]
    classes = "benign, malignant, of neither kind"
    lines = text_table(
        ["client", "classes"], [[names[0], ""], [names[1], classes]], 40
    ).splitlines()[1:]
    assert "".join(line[:19].strip() for line in lines) == "".join(names)
    assert " ".join(line[21:].strip() for line in lines).strip() == classes
    assert (
        wrap(Verbatim("fedlit test --config " + "x" * 60), 40) == "fedlit test --config " + "x" * 60
    )
    assert definitions([("--key", "what it is")], 40) == "  --key\n      what it is"


@pytest.mark.parametrize(("columns", "width"), [({}, 72), ({"COLUMNS": "55"}, 55)])
def test_a_pipe_keeps_whole_lines_and_columns_says_the_width(
    columns: dict[str, str], width: int, tmp_path: Path
) -> None:
    code = (
        "from fedlit.show.text import terminal_width; "
        "print(terminal_width(), terminal_width(open('log', 'w')))"
    )
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 72, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, **columns},
        stdin=end,
        stdout=end,
        stderr=end,
        check=True,
    )
    os.close(end)
    assert os.read(controller, 1000).decode().strip() == f"{width} None"
    os.close(controller)


def test_a_terminal_has_colours_and_a_pipe_has_none(
    on_terminal: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hostile(Shown):
        def parts(self) -> list[Part]:
            return ["Note: \x1b[32mgreen", Grid(["client"], [["\x1b[32mash"]])]

    def show() -> None:
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "xterm")
        print(for_terminal(Hostile()))

    lines = "\n".join(on_terminal(80, show))
    assert "\x1b[33mNote" in lines and "\x1b[1mclient" in lines and "\x1b[32m" not in lines
    plain = for_terminal(Hostile())
    assert "\x1b" not in plain and re.sub(r"\x1b\[\d*m", "", lines).split() == plain.split()


def test_html_escapes_and_has_no_colours(plan: Plan) -> None:
    page = results(["<script>alert('ash')</script>", "elm & oak"])._repr_html_()
    assert "<script" not in page and "color" not in page
    assert all(f">{cell}<" in page for cell in ("elm &amp; oak", "test:", "123,456", "0.5000"))
    assert "Federated: core.0.weight" in plan._repr_html_()


@pytest.mark.parametrize(("classes", "numbers"), [(3, 12), (25, 0)])
def test_a_confusion_matrix_has_a_row_of_unknown_labels(classes: int, numbers: int) -> None:
    matrix = torch.ones(classes + 1, classes, dtype=torch.int64)
    axes = confusion_figure("ash", [f"c{place}" for place in range(classes)], matrix).axes[0]
    shares = axes.images[0].get_array()
    assert (
        shares is not None and shares.shape == (classes + 1, classes) and len(axes.texts) == numbers
    )
    assert np.allclose(np.asarray(shares).sum(1), 1)


HOSTILE = [
    "<img src=x onerror=a()>",
    "</title></script><script>a()</script>",
    "\"'><svg onload=a()>",
    "\x1b[2J\u202e",
]


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


def test_names_are_no_elements_of_pages() -> None:
    sections = [
        Section(name, [name], [name], pd.DataFrame([HOSTILE], ["row"], HOSTILE)) for name in HOSTILE
    ]
    notebook = Grid(HOSTILE, [HOSTILE]).html()
    report = Tags(report_of(HOSTILE[1], sections)).found
    assert not {"img", "script", "svg", "onerror", "onload"} & (report | Tags(notebook).found)
    assert "\x1b" not in notebook and "\u202e" not in notebook


@pytest.mark.parametrize(
    "name",
    [*HOSTILE, "[a](javascript:a)", "a\n# b\n- c", "a|b", "`a` **b** _c_", "www.a.de", "&lt;"],
)
def test_a_label_is_plain_text_in_markdown(name: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    reader = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    inside = {
        token.type for own in reader.parse(f"# {in_markdown(name)}") for token in own.children or []
    }
    assert inside <= {"text", "text_special"} and "\x1b" not in in_markdown(name)
    assert len(reader.parse(f"|a|\n|-|\n|{in_markdown(name)}|\n")) == len(
        reader.parse("|a|\n|-|\n|b|\n")
    )

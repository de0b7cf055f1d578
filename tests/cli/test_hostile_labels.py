"""A table whose labels, columns and categories are formulas and markup, from fit to scores and an
exported folder."""

import csv
import re
from contextlib import chdir
from pathlib import Path

import pytest

from fedlit.__main__ import main

FORMULA = "=1+1"
MARKUP = "<img src=x onerror=alert(1)>|`\x1b[31m\n# heading"


def run(*words: str) -> None:
    assert main(list(words)) == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and a run of two epochs on them."""
    folder = tmp_path_factory.mktemp("hostile")
    for site, shift in (("north", 0), ("south", 1)):
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "@ward", "outcome"])
            for row in range(60):
                label = FORMULA if (row + shift) % 3 else MARKUP
                writer.writerow([20 + row, MARKUP if row % 2 else "+b", label])
    with chdir(folder):
        run("init", "*.csv", "--target", "outcome", "--out", "federation.yaml")
        run(
            "fit",
            "federation.yaml",
            "--trainer.max_epochs",
            "2",
            "--trainer.enable_progress_bar",
            "false",
        )
    return folder


def first_cells(path: Path) -> set[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {cell[:2] for row in csv.reader(file) for cell in row}


def test_scores_hold_no_formula_unless_asked_for(trained: Path) -> None:
    with chdir(trained):
        scored = (
            "predict",
            "--run",
            "federation",
            "--client",
            "north",
            "--data",
            "north.csv",
            "--keys",
            "@ward",
        )
        run(*scored, "--out", "scores.csv")
        run(*scored, "--out", "raw.csv", "--raw")
    assert not {
        cell for cell in first_cells(trained / "scores.csv") if cell[:1] in "=+@\t\r" and cell
    }
    assert {"=1", "+b"} <= first_cells(trained / "raw.csv")


def test_the_card_of_an_export_has_no_markup_of_labels(trained: Path) -> None:
    with chdir(trained):
        run("export", "--run", "federation", "--client", "north", "--out", "exported")
    card = (trained / "exported" / "model_card.md").read_text(encoding="utf-8")
    assert "\x1b" not in card
    assert not re.search(r"(?<!\\)<", card)
    assert "\n# heading" not in card

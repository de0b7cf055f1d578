"""The notebook of the documentation: it runs, and shows what it computed."""

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra `dev`")
FILE = Path(__file__).parent.parent / "docs" / "notebook.ipynb"


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(FILE, as_version=4)


def test_outputs_are_stored_and_name_no_folder_of_the_machine(notebook: Any) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(cell.outputs for cell in cells)
    kinds = {kind for cell in cells for output in cell.outputs for kind in output.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    assert not any(folder in FILE.read_text(encoding="utf-8") for folder in ("/home/", "/tmp/", "/root/"))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_it_runs(notebook: Any, tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient", reason="notebooks need the extra `dev`")
    for cell in notebook.cells:
        cell.source = re.sub(r"minutes=\d+", "minutes=0.1", cell.source)
    client.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "probability_malignant" in str(notebook.cells[-1].outputs)

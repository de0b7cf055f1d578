"""The page that shows the notebook with its stored outputs: ``python tests/notebooks.py`` writes
it."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOK = DOCS / "notebook.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")
NOT_RUN = "<!-- not run: the notebook is, cell by cell -->"
DOWNLOAD = (
    f"*This page shows a [notebook]({NOTEBOOK.name}) with its outputs. Save the file to run "
    "it in Jupyter.*"
)
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)


def made() -> dict[Path, bytes]:
    """Return the page and its pictures: file → content."""
    files: dict[Path, bytes] = {}
    parts: list[str] = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            code = source.removesuffix(";")  # which only tells Jupyter not to show a value
            parts.append(f"{NOT_RUN}\n```python\n{code}\n```")
            parts += [_output(output, files) for output in cell["outputs"]]
    title, *others = parts[0].split("\n\n")
    parts[0] = "\n\n".join([title, DOWNLOAD, *others])
    files[PAGE] = ("\n\n".join(parts) + "\n").encode()
    return files


def _output(output: Mapping[str, Any], files: dict[Path, bytes]) -> str:
    """Return an output as Markdown, by the richest form that it has; its picture is added to the
    files."""
    data = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
    if "image/png" in data:
        picture = DOCS / "pictures" / f"notebook_{len(files)}.png"
        files[picture] = base64.b64decode(data["image/png"])
        return f"![Output of the cell above](pictures/{picture.name})"
    if "text/html" in data:
        # Markdown ends a block of HTML at an empty line
        return "\n".join(
            line for line in STYLE.sub("", data["text/html"]).splitlines() if line.strip()
        )
    text = data.get("text/plain", "".join(output.get("text", "")))
    return f"```text\n{text.rstrip()}\n```"


if __name__ == "__main__":
    for path, content in made().items():
        path.write_bytes(content)

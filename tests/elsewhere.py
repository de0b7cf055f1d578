"""What other processes do: commands without torch; scores of exported folders without all that
fedlit needs."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

ROWS = (None, 1, 0)
"""How many of the first rows are scored; None for all."""
BLOCKED = (
    "torch", "lightning", "jsonargparse", "torchmetrics", "torchvision", "sklearn", "scipy", "safetensors", "onnx",
    "onnxscript", "yaml", "tqdm", "filelock", "matplotlib",
)  # fmt: skip
CODE = """
import builtins, json, sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")

def no_arrow(name, globals=None, *rest, real=builtins.__import__, **more):
    if name.startswith("pyarrow") and globals and globals["__name__"].startswith("fedlit"):  # pandas may
        raise ImportError(f"{name} is blocked")
    return real(name, globals, *rest, **more)

sys.meta_path.insert(0, Blocked())
builtins.__import__ = no_arrow
import pandas as pd
import fedlit.score

for folder in FOLDERS:
    scorer, rows = fedlit.score.load(folder), pd.read_parquet(folder + ".rows")
    for count in ROWS:
        scorer.predict(rows if count is None else rows.head(count)).to_parquet(f"{folder}.{count}")
"""


def scored_elsewhere(rows: Mapping[Path, pd.DataFrame]) -> dict[Path, list[pd.DataFrame]]:
    """What folders predict of rows: of all, of the first alone, and of none; by one process.

    Args:
        rows: folder → what it is to score.
    """
    for folder, frame in rows.items():
        frame.to_parquet(f"{folder}.rows")
    values = {"BLOCKED": BLOCKED, "FOLDERS": [*map(str, rows)], "ROWS": ROWS}
    head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    done = subprocess.run(
        [sys.executable, "-c", head + CODE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {folder: [pd.read_parquet(f"{folder}.{count}") for count in ROWS] for folder in rows}


LIGHT = """
import contextlib, io, json, sys
from fedlit.__main__ import main
told, (commands, heavy) = [], json.load(sys.stdin)
for words in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    told.append([status, out.getvalue(), err.getvalue()])
    assert not {*heavy} & set(sys.modules), (words, {*heavy} & set(sys.modules))
json.dump(told, sys.stdout)
"""


def light(
    commands: Sequence[Sequence[str]], folder: Path, *more: str
) -> list[tuple[int, str, str]]:
    """Exit status, output and messages of commands, none of which imports torch, or more."""
    return without(("torch", "lightning", *more), commands, folder)


def without(
    heavy: Sequence[str], commands: Sequence[Sequence[str]], folder: Path
) -> list[tuple[int, str, str]]:
    """Exit status, output and messages of commands, none of which imports any of these modules."""
    asked = json.dumps([commands, heavy])
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=folder, input=asked, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [(status, out, err) for status, out, err in json.loads(done.stdout)]


def mistakes(section: str) -> list[tuple[list[str], list[str]]]:
    """Commands of a section of ``cli/mistakes.yaml``, each with what its message names."""
    text = yaml.safe_load(
        (Path(__file__).parent / "cli" / "mistakes.yaml").read_text(encoding="utf-8")
    )[section]
    return [
        (shlex.split(words), names)
        for words, *names in (line.split(" | ") for line in text.strip().splitlines())
    ]

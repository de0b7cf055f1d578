"""Configurations and checkpoints that somebody wrote to harm who opens them. CANARY is a file that
none may make."""

import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import yaml

MODULE = "import pathlib\npathlib.Path('CANARY').touch()\nclass Net: ...\n"
"""Of a module ``sideeffect`` that lies in the run's folder and in the working directory."""

SYSTEM = {"class_path": "os.system", "init_args": {"command": "touch CANARY"}}
_FILE = Path(__file__).with_suffix(".yaml")
REFUSED: dict[str, tuple[str, Any]] = {
    name: next(iter(own.items()))
    for name, own in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()
}
"""Key and value that a command refuses."""

_LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
TEXTS: dict[str, Callable[[str], bytes]] = {
    "a tag of Python": lambda text: (
        text + "\nname: !!python/object/apply:os.system [touch CANARY]\n"
    ).encode(),
    "anchors that grow": lambda text: f"a0: &a0 [1, 1]\n{_LAUGHS}\n{text}".encode(),
    "an anchor that holds itself": lambda text: f"name: &a [*a]\n{text}".encode(),
    "nested without end": lambda text: f"name: {'[' * 20_000}".encode(),
    "eight megabytes": lambda text: text.encode() + b"#" * 2**23,
    "other bytes": lambda text: b"\x80\x04\x95" + text.encode(),
    "nothing": lambda text: b"",
    "a key twice": lambda text: (text + "\nexchange: {rule: {class_path: os.system}}\n").encode(),
}
"""Whole files, of the text of a good one."""


def put(
    content: dict[str, Any], key: str, value: Any, folder: Path, canary: Path
) -> dict[str, Any]:
    """A configuration with one value changed."""
    made = deepcopy(content)
    *path, last = key.split(".")
    place = made
    for part in path:
        place = place.setdefault(part, {})
    filled = (
        yaml.safe_dump({"value": value}, width=10_000)
        .replace("CANARY", str(canary))
        .replace("FOLDER", str(folder))
    )
    place[last] = yaml.safe_load(filled)["value"]
    return made


def plant(folder: Path, canary: Path) -> None:
    """What lies beside a hostile configuration."""
    (folder / "sideeffect.py").write_text(MODULE.replace("CANARY", str(canary)))
    (folder / "more.yaml").write_text(yaml.safe_dump(SYSTEM).replace("CANARY", str(canary)))


OPTIONAL = (
    "bottleneck",
    "jax",
    "numexpr",
    "polars",
    "pynvml",
    "ray",
    "sitecustomize",
    "tensorflow",
    "usercustomize",
)
"""Modules that other packages import if they are there."""


def plant_modules(folder: Path, canary: Path) -> None:
    """Modules with the names of all that Python, fedlit and the packages that are installed here
    import, and a package ``fedlit``. Each writes its name into the canary.
    """
    content = f"open({str(canary)!r}, 'a').write(__name__ + '\\n')\nraise SystemExit(99)\n"
    optional = {
        "bottleneck",
        "jax",
        "numexpr",
        "polars",
        "pynvml",
        "ray",
        "sitecustomize",
        "tensorflow",
        "usercustomize",
    }
    for name in {*sys.stdlib_module_names, *packages_distributions(), *optional} - {"fedlit"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(content)
    (folder / "fedlit").mkdir()
    (folder / "fedlit" / "__init__.py").write_text(content)


OF_CLIENTS = ("clients that are no clients",)
"""Checkpoints that only commands for one client refuse (benchmarks/drill/hostile.py); the others
score without it."""


class _Runs:
    def __init__(self, canary: Path) -> None:
        self.command = f"touch {canary}"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def checkpoints(good: Path, folder: Path, canary: Path) -> dict[str, Path]:
    """Name → a file that is no honest checkpoint, made of a good one."""
    import torch

    from fedlit.train import checkpoint_file

    folder.mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {**checkpoint_file.load(good)}
    packed = torch.load(good, weights_only=True)
    tensors = whole["state_dict"]
    run = whole["fedlit"]
    runs = _Runs(canary)
    first = next(name for name in tensors if name.startswith("clients.wine."))
    contents: dict[str, Any] = {
        "a pickle in torch's file": {**whole, "more": runs},
        "a pickle in place of the tensors": runs,
        "a tensor of another shape": {**whole, "state_dict": {**tensors, first: torch.zeros(3, 2)}},
        "a tensor of 128 TiB, of one number": {
            **whole,
            "state_dict": {**tensors, first: torch.zeros(1).expand(2**45)},
        },
        "text in place of a tensor": {**whole, "state_dict": {**tensors, first: "x"}},
        "no tensors": {**whole, "state_dict": {}},
        "a list": [1, 2, 3],
        "a text that is no JSON": {**packed, "packed": torch.tensor(list(b"{")).byte()},
        "a text that is a number": {**packed, "packed": torch.tensor(list(b"5")).byte()},
        "a text that is no tensor": {**packed, "packed": "{}"},
        "stacks that are missing": {**packed, "stacks": []},
        "stacks that are no tensors": {**packed, "stacks": "x"},
        "a number in place of the run": {**whole, "fedlit": 5},
        "a run without its parts": {**whole, "fedlit": {}},
        "clients that are no clients": {**whole, "fedlit": {**run, "specs": {"wine": 3}}},
        "encoders that are none": {**whole, "fedlit": {**run, "encoders": {"wine": [1]}}},
    }
    found = {name: folder / f"{number}.ckpt" for number, name in enumerate(["a pickle", *contents])}
    found["a pickle"].write_bytes(pickle.dumps(runs))
    for name, content in contents.items():
        torch.save(content, found[name])
    bomb = found["a zip of 4 GiB of zeros"] = folder / "bomb.ckpt"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("archive/data.pkl", "w", force_zip64=True) as inside,
    ):
        for _ in range(256):
            inside.write(bytes(2**24))
    return found

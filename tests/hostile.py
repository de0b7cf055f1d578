"""Configurations and checkpoints that somebody wrote to harm who opens them. CANARY is a file that none may make."""

import os
import pickle
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

TOUCH = {"command": "touch CANARY"}
SYSTEM = {"class_path": "os.system", "init_args": TOUCH}
POPEN = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "CANARY"]}}
MODULE = "import pathlib\npathlib.Path('CANARY').touch()\nclass Net: ...\n"
"""Of a module ``sideeffect`` that lies in the run's folder and in the working directory."""

REFUSED: dict[str, tuple[str, Any]] = {
    "a function of os as the rule": ("exchange.rule", SYSTEM),
    "a process as the network": ("model.client.init_args.network", POPEN),
    "eval as the optimizer": ("model.optimizer", {"class_path": "builtins.eval", "init_args": {"source": "1"}}),
    "a module with side effects": ("model.client", {"class_path": "sideeffect.Net"}),
    "fedlit imports it, too": ("exchange.rule", {**POPEN, "class_path": "fedlit.run.worker.subprocess.Popen"}),
    "what a network's module imports": ("exchange.rule", {**SYSTEM, "class_path": "fedlit.nn.os.system"}),
    "a class in the settings of a class": ("model.client.init_args.network.init_args.activation", SYSTEM),
    "a class in settings without checks": ("model.client.dict_kwargs", {"more": SYSTEM}),
    "a class in a list": ("data.mutations", [{"client": "wine", "kind": SYSTEM}]),
    "text that names a function": ("exchange.rule", "os.system"),
    "settings written as text": ("exchange.rule", yaml.safe_dump(SYSTEM, default_flow_style=True, width=999).strip()),
    "settings in a file": ("exchange.rule", "FOLDER/more.yaml"),
    "a schedule of functions": (
        "model.scheduler", {"class_path": "torch.optim.lr_scheduler.LambdaLR", "init_args": {"lr_lambda": "os.system"}}
    ),
    "a function for a schedule": (
        "model.scheduler", {"class_path": "torch.optim.lr_scheduler.CyclicLR", "init_args": {"scale_fn": "os.system"}}
    ),
    "a class without its module": ("exchange.rule", {"class_path": "system"}),
    "a pickle's reader": ("exchange.rule", {"class_path": "torch.load", "init_args": {"f": "FOLDER/more.yaml"}}),
    "a class in a known source": (
        "data.source", {"class_path": "fedlit.Partition", "init_args": {"source": {"class_path": "fedlit.Bundled"},
                                                                       "clients": "os.system"}}
    ),
    "a callback by a key that adds": ("trainer", {"callbacks+": "ModelCheckpoint"}),
    "a callback by a key with dots": ("trainer", {"callbacks.class_path": "ModelCheckpoint"}),
    "a callback by its short name": ("trainer.callbacks", ["ModelCheckpoint"]),
    "a network by a key with dots": ("model.client.init_args", {"network.class_path": "Net"}),
    "a callback that writes": (
        "trainer.callbacks", [{"class_path": "lightning.pytorch.callbacks.ModelCheckpoint",
                               "init_args": {"dirpath": "FOLDER"}}]
    ),
    "a logger that writes elsewhere": (
        "trainer.logger", {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "FOLDER"}}
    ),
    "a profiler that writes": (
        "trainer.profiler", {"class_path": "lightning.pytorch.profilers.SimpleProfiler",
                             "init_args": {"dirpath": "FOLDER", "filename": "x"}}
    ),
    "a plugin": ("trainer.plugins", [SYSTEM]),
    "a database": (
        "data.source", {"class_path": "fedlit.Tables", "init_args": {
            "files": {"a": {"path": "sqlite:///CANARY", "query": "select 1"}}, "target": "x"}}
    ),
    "a source of one's own": ("data.source", {"class_path": "sideeffect.Net"}),
}  # fmt: skip
"""Key and value that a command refuses."""

_LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
TEXTS: dict[str, Callable[[str], bytes]] = {
    "a tag of Python": lambda text: (text + "\nname: !!python/object/apply:os.system [touch CANARY]\n").encode(),
    "anchors that grow": lambda text: f"a0: &a0 [1, 1]\n{_LAUGHS}\n{text}".encode(),
    "an anchor that holds itself": lambda text: f"name: &a [*a]\n{text}".encode(),
    "nested without end": lambda text: f"name: {'[' * 20_000}".encode(),
    "eight megabytes": lambda text: text.encode() + b"#" * 2**23,
    "other bytes": lambda text: b"\x80\x04\x95" + text.encode(),
    "nothing": lambda text: b"",
    "a key twice": lambda text: (text + "\nexchange: {rule: {class_path: os.system}}\n").encode(),
}
"""Whole files, of the text of a good one."""


def put(content: dict[str, Any], key: str, value: Any, folder: Path, canary: Path) -> dict[str, Any]:
    """A configuration with one value changed."""
    made = deepcopy(content)
    *path, last = key.split(".")
    place = made
    for part in path:
        place = place.setdefault(part, {})
    filled = (
        yaml.safe_dump({"value": value}, width=10_000).replace("CANARY", str(canary)).replace("FOLDER", str(folder))
    )
    place[last] = yaml.safe_load(filled)["value"]
    return made


def plant(folder: Path, canary: Path) -> None:
    """What lies beside a hostile configuration."""
    (folder / "sideeffect.py").write_text(MODULE.replace("CANARY", str(canary)))
    (folder / "more.yaml").write_text(yaml.safe_dump(SYSTEM).replace("CANARY", str(canary)))


OF_CLIENTS = ("clients that are no clients",)
"""What only commands for one client read; the others score without it."""


class _Runs:
    def __init__(self, canary: Path) -> None:
        self.command = f"touch {canary}"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def checkpoints(good: Path, folder: Path, canary: Path) -> dict[str, Path]:
    """Name → a file that is no honest checkpoint, made of a good one."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    read = lambda: torch.load(good, weights_only=True)  # noqa: E731
    whole, found = read(), dict[str, Path]()

    def keep(name: str, content: Any) -> None:
        found[name] = folder / f"{len(found)}.ckpt"
        torch.save(content, found[name])

    plain = found["a pickle"] = folder / "plain.ckpt"
    plain.write_bytes(pickle.dumps(_Runs(canary)))
    keep("a pickle in torch's file", {**whole, "more": _Runs(canary)})
    keep("a pickle in place of the tensors", _Runs(canary))
    first = next(name for name in whole["state_dict"] if name.startswith("clients.wine."))
    keep("a tensor of another shape", {**whole, "state_dict": {**whole["state_dict"], first: torch.zeros(3, 2)}})
    huge = torch.zeros(1).expand(2**45)
    keep("a tensor of 128 TiB, of one number", {**whole, "state_dict": {**whole["state_dict"], first: huge}})
    keep("text in place of a tensor", {**whole, "state_dict": {**whole["state_dict"], first: "x"}})
    keep("no tensors", {**whole, "state_dict": {}})
    keep("a list", [1, 2, 3])
    keep("a number in place of the run", {**whole, "fedlit": 5})
    keep("a run without its parts", {**whole, "fedlit": {}})
    keep("clients that are no clients", {**whole, "fedlit": {**whole["fedlit"], "specs": {"wine": 3}}})
    keep("encoders that are none", {**whole, "fedlit": {**whole["fedlit"], "encoders": {"wine": [1]}}})
    bomb = found["a zip of 4 GiB of zeros"] = folder / "bomb.ckpt"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("archive/data.pkl", "w", force_zip64=True) as inside,
    ):
        for _ in range(256):
            inside.write(bytes(2**24))
    return found

"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``: what they print."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

from fedlit.explain.clusters import CLUSTERS, in_words, judged, read_clusters
from fedlit.run.arguments import Asked, option, options, title
from fedlit.run.load import parse

__all__ = ["execute"]


def _program() -> str:
    """How the command was called, as far as it must be typed again: ``make fit`` calls one that is not on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m fedlit"
    return "fedlit" if shutil.which("fedlit") or called.name != "fedlit" else str(called)


def _same_run(asked: Asked, name: str) -> str:
    """The arguments by which another command finds the run that these arguments made."""
    parts = [
        part for flag, value in options(asked.typed) if flag in ("--config", "-c") for part in ("--config", str(value))
    ]
    parts += ["--name", name] if title(asked.configs) != name else []
    root = option(asked.typed, "--trainer.default_root_dir")
    parts += ["--trainer.default_root_dir", root] if root else []
    return shlex.join(parts)


def execute(asked: Asked) -> None:
    """Run one command and print what it has to say."""
    run, config = parse(asked)
    command = asked.command
    if command == "describe":
        plan = run.describe()
        print(json.dumps(plan.to_dict(), indent=2, default=str) if config.format == "json" else plan)
    elif command == "fit":
        print(f"\n{run.fit(config.ckpt_path)}\n")
        if run.folder is not None and (run.folder / CLUSTERS).is_file():
            belong = in_words(judged(read_clusters(run.folder / CLUSTERS)))
            print(f"Who belongs together, by the majority of the last five exchanges: {belong}")
        if run.last_checkpoint is not None:
            print(f"Next: {_program()} test {_same_run(asked, run.name)}")
        if any(run.folder.glob("federation/events.*")) if run.folder else False:
            print(f"Curves: tensorboard --logdir {run.root}")
    elif command == "validate":
        run.validate(config.ckpt_path)
    elif command == "test":
        run.test(config.ckpt_path)
    else:
        for client, path in run.predict(config.ckpt_path, format=config.format or "csv").items():
            print(f"{client}: {path}")

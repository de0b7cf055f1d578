"""Whether two checkouts compute the same bits: ``same_bits.py OLD NEW [--only PATTERN ...]``.

Both checkouts run, on this machine:

- every method of the contract tests under each engine, whole and resumed;
- every shipped method over the quickstart's configuration;
- every shipped configuration and mixture whose data is at hand, cut short;
- a study with its local baselines.

Hashes of tensors, scores, plans and files are compared. No hash is kept: another machine gives
other bits. Rows of a clean checkout are kept in ``--cache``: the same script does not compute them
again, and continues after it was stopped. Nothing is downloaded: a row whose data is missing is
skipped, with the reason. The exit status is 0 only if no row differs and none fails.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Hashes = dict[str, str]
"""Part of a result → its hash. A row that could not be computed has one part alone: ``failed`` or
``skipped``, with the reason."""
Row = tuple[str, Hashes, float]
"""Name, hashes, CPU seconds."""
Case = Callable[[Path], Hashes]
"""Computes a row in a fresh folder."""

ENGINES = ("plain", "threads", "stacked")
ONE_EPOCH = ("covertype_fedgmcc", "covertype_centralized", "emnist_fedgmcc", "genomes_fedgmcc")
"""Configurations whose epochs take minutes; :func:`epochs_of` says how long others train."""
MOST_TEST_ROWS = 20_000
"""Predictions of larger federations are not compared."""
NO_NETWORK = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "127.0.0.1:9"
)
MISSING = ("found it in neither", "no connection")
"""What fedlit says of data that is not here and cannot be downloaded."""


def digest(value: Any) -> str:
    """Hash tensors by their bytes, anything else by its JSON (floats to the last bit)."""
    import torch

    result = hashlib.blake2b(digest_size=8)
    if isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values()):
        for name, tensor in sorted(value.items()):
            result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().view(-1)
            result.update(flat.view(torch.uint8).numpy().tobytes())
    else:
        result.update(json.dumps(value, sort_keys=True, default=str).encode())
    return result.hexdigest()


def of_run(run: Any, split: str = "validation") -> Hashes:
    """Hash what a trained run has to show."""
    loop = run.loop
    scores = {
        name: list(map(repr, score.values())) for name, score in loop.results[split].scores.items()
    }
    history = []
    for epoch in loop.history:
        history.append({key: value for key, value in epoch.items() if "seconds" not in key})
    exchange = run.exchange
    hashes = {
        "tensors": digest(loop.state_dict()),
        "results": digest(loop.results[split].to_dict()),
        "scores": digest(scores),
        "history": digest(history),
        "exchange": digest([exchange.rounds, exchange.bytes, exchange.not_finite]),
    }
    if run.folder is not None:
        for name in ("clusters.csv", "pairs.csv", "corrections.csv", "test.csv"):
            if (run.folder / name).is_file():
                hashes[name] = digest((run.folder / name).read_text())
    return hashes


def of_test(run: Any) -> Hashes:
    """Hash the test scores and the predictions of a trained run."""
    run.test(quiet=True)
    hashes = {"test": digest(run.loop.results["test"].to_dict())}
    for client, path in run.predict(quiet=True).files.items():
        hashes[f"predictions of {client}"] = digest(path.read_text())
    return hashes


def contract(method: str, engine: str) -> Case:
    """A method of the contract tests, trained, and resumed from the middle of an epoch."""

    def work(folder: Path) -> Hashes:
        from contracts import options_of
        from federations import make_run
        from lightning.pytorch import Callback

        class Stop(Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                if trainer.global_step == 6:
                    trainer.save_checkpoint(folder / "middle.ckpt")
                    raise KeyboardInterrupt

        options = options_of(method, engine)
        run = make_run(folder / "whole", **options)
        plan = digest(run.describe().to_dict())
        run.fit(quiet=True)
        hashes = {**of_run(run), "plan": plan}
        stopped = make_run(folder / "part", callbacks=[Stop()], **options)
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            stopped.fit(quiet=True)
        resumed = make_run(folder / "part", **options)
        resumed.fit(folder / "middle.ckpt", quiet=True)
        hashes["resumed"] = digest(resumed.loop.state_dict())
        run.test(quiet=True)
        hashes["test"] = digest(run.loop.results["test"].to_dict())
        return hashes

    return work


def epochs_of(name: str) -> int:
    """Return for how many epochs a shipped configuration trains: two, or until its first exchange."""
    if name in ONE_EPOCH:
        return 1
    return 5 if name.endswith("_chfl") else 2


def config(name: str, method: str | None = None, **keys: Any) -> Case:
    """A shipped configuration, cut to a few epochs: its plan, test scores and predictions."""

    def work(folder: Path) -> Hashes:
        import fedlit

        overrides = {
            "trainer.max_epochs": epochs_of(name),
            "trainer.default_root_dir": str(folder),
            **keys,
        }
        if method is not None:
            overrides["method"] = method
        run = fedlit.load(f"{name}.yaml", overrides=overrides)
        plan = digest(run.describe().to_dict())
        run.fit(quiet=True)
        hashes = {**of_run(run), "plan": plan}
        if sum(spec.rows["test"] for spec in run.data.specs) < MOST_TEST_ROWS:
            hashes.update(of_test(run))
        return hashes

    return work


def study(folder: Path) -> Hashes:
    """A study with its local baselines."""
    import pandas as pd

    import fedlit

    result = fedlit.compare("quickstart", seeds="1:2", out=folder / "study", quiet=True, workers=1)
    table = pd.read_csv(
        result.folder / "results.csv", keep_default_na=False, na_values={"value": [""]}
    )
    return {
        "rows": str(len(table)),
        "results": digest(table.to_csv()),
        "chosen": digest(result.collected.chosen.to_csv()),
        "lift": digest(result.lift.round(9).to_csv()),
    }


def mixture(settings: dict[str, Any]) -> Case:
    """A mixture: its weights, test scores and predictions."""

    def work(folder: Path) -> Hashes:
        from fedlit.mixture.mixture import Mixture

        trainer = {"default_root_dir": str(folder)}
        result = Mixture({**settings, "name": "mixture", "trainer": trainer})
        result.fit(quiet=True)
        result.test(quiet=True)
        result.predict(quiet=True)
        assert result.folder is not None
        record = json.loads((result.folder / "mixture.json").read_text())
        hashes = {"weights": digest(record["clients"])}
        predictions = (result.folder / "predictions").rglob("*.csv")
        for path in sorted([result.folder / "test.csv", *predictions]):
            hashes[path.name] = digest(path.read_text())
        return hashes

    return work


def two_baselines_and(name: str, weights: str) -> Case:
    """A mixture of two local baselines and a shipped configuration."""
    parts = {
        "trees": {"go_alone": "extra_trees", "grid": {"n_estimators": [20, 40]}},
        "linear": {"go_alone": "ridge" if name == "diabetes" else "logistic_regression"},
        "federated": {"config": f"{name}.yaml", "set": {"trainer.max_epochs": 2}},
    }
    content = {"parts": parts, "admit": False, "weights": weights}
    return mixture({"mixture": content, "seed": 8, "folds": 2})


def shipped_mixture(file: Path) -> Case:
    """A shipped mixture in two folds, with small trees and two epochs."""
    import yaml

    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    settings["folds"] = 2
    settings.pop("workers", None)
    for part in settings["mixture"]["parts"].values():
        if "go_alone" not in part:
            part["set"] = {**part.get("set", {}), "trainer.max_epochs": 2}
        for key, values in part.get("grid", {}).items():
            part["grid"][key] = [20] if key == "n_estimators" else values[:1]
    return mixture(settings)


def cases(checkout: Path) -> dict[str, Case]:
    """Return all rows of a checkout by name."""
    rows: dict[str, Case] = {}
    rows.update(_methods())
    rows.update(_shipped(checkout / "configs"))
    for engine in ("plain", "threads", "auto"):
        engine_keys = {"model.engine": engine, "model.threads": 2}
        rows[f"engine {engine}, quickstart"] = config("quickstart", **engine_keys)
        rows[f"engine {engine}, heart_gl"] = config("heart_gl", **engine_keys)
    compiled = {"model.kernels": "compiled"}
    rows["compiled heart_gl"] = config("heart_gl", **compiled)
    digits = {"class_path": "fedlit.Bundled", "init_args": {"clients": ["digits"]}}
    eight = {"class_path": "fedlit.Partition", "init_args": {"source": digits, "clients": 8}}
    alike = {"data.source": eight}
    rows["eight alike, stacked"] = config("quickstart", **alike)
    rows["eight alike, stacked, compiled"] = config("quickstart", **alike, **compiled)
    participation = {"exchange.participation": 0.5}
    rows["eight alike, half of them a round"] = config("quickstart", **alike, **participation)
    rows["study quickstart"] = study
    for weights in ("fitted", "together"):
        for name in ("quickstart", "diabetes"):
            rows[f"mixture of {name}, {weights}"] = two_baselines_and(name, weights)
    return rows


def _methods() -> dict[str, Case]:
    """Return a row for each method of the contract tests and each engine."""
    import contracts

    rows = {}
    for method in contracts.ALL:
        for engine in ENGINES:
            rows[f"contract {method} / {engine}"] = contract(method, engine)
    for circumstance in contracts.APART:
        rows[f"contract {circumstance} / plain"] = contract(circumstance, "plain")
    return rows


def _shipped(folder: Path) -> dict[str, Case]:
    """Return a row for each method, configuration and mixture that a checkout ships."""
    rows = {}
    for file in sorted(folder.glob("*.yaml")):
        if "\nmixture:" in file.read_text(encoding="utf-8"):
            rows[f"mixture {file.stem}"] = shipped_mixture(file)
        else:
            rows[f"config {file.stem}"] = config(file.stem)
    for file in sorted((folder / "methods").glob("*.yaml")):
        rows[f"method {file.stem}"] = config("quickstart", file.stem)
    return rows


def serve(only: list[str], cached: Path) -> None:
    """Compute the rows of this checkout that are not in a file, and append them to it."""
    checkout = os.environ["CHECKOUT"]
    sys.path[:0] = [checkout, str(Path(checkout) / "tests")]
    os.chdir(tempfile.mkdtemp())
    import fedlit

    assert fedlit.__file__.startswith(checkout), fedlit.__file__
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    known = {name for name, _, _ in _rows_in(cached)}
    for name, work in cases(Path(checkout)).items():
        if name in known or not _is_asked(name, only):
            continue
        began = sum(os.times()[:4])
        with tempfile.TemporaryDirectory() as folder:
            try:
                hashes = work(Path(folder))
            except Exception as error:  # not a signal, which ends the script
                reason = f"{type(error).__name__}: {error}"
                is_missing = any(phrase in reason for phrase in MISSING)
                hashes = {"skipped" if is_missing else "failed": reason[:400]}
        line = json.dumps([name, hashes, sum(os.times()[:4]) - began])
        with cached.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        print(line, file=output, flush=True)


def answers(checkout: Path, only: list[str], cache: Path) -> Iterator[Row]:
    """Yield the rows of a checkout. If it is clean, rows are cached one by one, so that a script
    that was stopped continues.
    """
    git = ["git", "-C", str(checkout)]
    commit = _output([*git, "rev-parse", "HEAD"]).strip()
    dirty = _output([*git, "status", "--porcelain"])
    cached = cache / f"{commit}-{digest_text(Path(__file__).read_text(encoding='utf-8'))}.jsonl"
    if dirty:
        cached = Path(tempfile.mkdtemp()) / "rows.jsonl"
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.touch()
    for row in _rows_in(cached):
        if _is_asked(row[0], only):
            yield row
    path = str(checkout.resolve())
    environment = {**os.environ, **NO_NETWORK, "CHECKOUT": path, "PYTHONPATH": path}
    options = ["--serve", str(cached), "--only", *only]
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        sys.exit(f"{checkout}: the rows ended with exit status {process.returncode}")


def _rows_in(cached: Path) -> list[Row]:
    return [json.loads(line) for line in cached.read_text(encoding="utf-8").splitlines()]


def _is_asked(name: str, only: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in only)


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def digest_text(text: str) -> str:
    """Return a short hash."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def verdict(before: Hashes, after: Hashes) -> tuple[str, list[str]]:
    """Return one word on a row of two checkouts, and a line for each reason."""
    if "skipped" in before and "skipped" in after:
        return "skipped", [after["skipped"]]
    if "failed" in before and "failed" in after:
        return "FAILED", [after["failed"]]
    parts = [part for part in {**before, **after} if before.get(part) != after.get(part)]
    lines = [f"{part}: {before.get(part)} → {after.get(part)}" for part in parts]
    return ("DIFFERENT" if parts else "same"), lines


def compare(old: Path, new: Path, only: list[str], cache: Path) -> int:
    """Print a line for each row, and return how many differ or fail."""
    expected: dict[str, Hashes] = {}
    for name, hashes, seconds in answers(old, only, cache):
        expected[name] = hashes
        print(f"{old}: {seconds:6.1f} s  {name}", file=sys.stderr, flush=True)
    counts = dict.fromkeys(("same", "skipped", "DIFFERENT", "FAILED"), 0)
    unknown = []
    total = 0.0
    for name, hashes, seconds in answers(new, only, cache):
        total += seconds
        if name not in expected:
            unknown.append(name)
            continue
        word, lines = verdict(expected.pop(name), hashes)
        counts[word] += 1
        print(f"{word:<9} {seconds:6.1f} s  {name}", flush=True)
        for line in lines:
            print(f"    {line}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()), f"({total:.0f} CPU s)")
    print(f"{old} alone has: {', '.join(expected) or 'none'}")
    print(f"{new} alone has: {', '.join(unknown) or 'none'}")
    return counts["DIFFERENT"] + counts["FAILED"]


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, help="the old one, and the new one")
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of names of rows")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fedlit-bits")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.only, arguments.serve)
        return 0
    old, new = arguments.checkouts
    return int(compare(old, new, arguments.only, arguments.cache) > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Whether two checkouts compute the same bits: ``same_bits.py OLD NEW [--only PATTERN]``.

Runs every method of the contract tests under each engine, resumed runs, shipped configurations,
mixtures and a study in both checkouts on this machine, and compares hashes of tensors, scores,
plans and files. No hash is kept: another machine gives other bits. What a checkout has answered
lies in ``--cache`` and is not computed again for the same commit.
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

DATA = ("covertype", "heart", "shifts", "digits", "quickstart", "diabetes")
SLOW = ("covertype_fedgmcc", "covertype_centralized")  # one epoch: they take minutes


def digest(value: Any) -> str:
    """Of tensors by their bytes, of anything else by its JSON (floats to the last bit)."""
    import torch

    own = hashlib.blake2b(digest_size=8)
    if isinstance(value, dict) and any(isinstance(one, torch.Tensor) for one in value.values()):
        for name, tensor in sorted(value.items()):
            own.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            own.update(
                tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    else:
        own.update(json.dumps(value, sort_keys=True, default=str).encode())
    return own.hexdigest()


def of_run(run: Any, split: str = "validation") -> dict[str, str]:
    """What a trained run has to show."""
    loop = run.loop
    timeless = [
        {key: one for key, one in own.items() if "seconds" not in key} for own in loop.history
    ]
    own = {
        "tensors": digest(loop.state_dict()),
        "results": digest(loop.results[split].to_dict()),
        "scores": digest(
            {
                name: list(map(repr, one.values()))
                for name, one in loop.results[split].scores.items()
            }
        ),
        "history": digest(timeless),
        "exchange": digest([run.exchange.rounds, run.exchange.bytes, run.exchange.not_finite]),
    }
    if run.folder is not None:
        for name in ("clusters.csv", "pairs.csv", "corrections.csv", "test.csv"):
            if (run.folder / name).is_file():
                own[name] = digest((run.folder / name).read_text())
    return own


def contract(method: str, engine: str) -> Callable[[Path], dict[str, str]]:
    """A method of the contract tests, trained, and resumed from the middle of an epoch."""

    def work(folder: Path) -> dict[str, str]:
        import federations
        from lightning.pytorch import Callback

        class Stop(Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                if trainer.global_step == 6:
                    trainer.save_checkpoint(folder / "middle.ckpt")
                    raise KeyboardInterrupt

        options = {**federations.METHODS, **federations.CLUSTERED}[method]
        options = {**options, "loop": {**options.get("loop", {}), "engine": engine, "threads": 2}}
        run = federations.make_run(folder / "whole", **options)
        plan = digest(run.describe().to_dict())
        run.fit(quiet=True)
        found = of_run(run) | {"plan": plan}
        stopped = federations.make_run(folder / "part", callbacks=[Stop()], **options)
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            stopped.fit(quiet=True)
        resumed = federations.make_run(folder / "part", **options)
        resumed.fit(folder / "middle.ckpt", quiet=True)
        found["resumed"] = digest(resumed.loop.state_dict())
        run.test(quiet=True)
        found["test"] = digest(run.loop.results["test"].to_dict())
        return found

    return work


def config(name: str, *keys: str) -> Callable[[Path], dict[str, str]]:
    """A shipped configuration, cut to two epochs, its test scores and predictions."""

    def work(folder: Path) -> dict[str, str]:
        import fedlit

        epochs = 1 if name in SLOW else 2
        changed = (f"--trainer.max_epochs={epochs}", f"--trainer.default_root_dir={folder}", *keys)
        run = fedlit.load(f"{name}.yaml", *changed)
        plan = digest(run.describe().to_dict())
        run.fit(quiet=True)
        found = of_run(run) | {"plan": plan}
        if sum(spec.rows["test"] for spec in run.data.specs) < 20_000:
            run.test(quiet=True)
            found["test"] = digest(run.loop.results["test"].to_dict())
            predicted = run.predict(quiet=True)
            # older checkouts gave the files
            for client, path in getattr(predicted, "files", predicted).items():
                found[f"predictions of {client}"] = digest(path.read_text())
        return found

    return work


def study(folder: Path) -> dict[str, str]:
    """A study with its baselines."""
    import pandas as pd

    import fedlit

    whole = fedlit.compare("quickstart", seeds="1:2", out=folder / "study", quiet=True, jobs=1)
    results = pd.read_csv(
        whole.folder / "results.csv", keep_default_na=False, na_values={"value": [""]}
    )
    found = {"rows": str(len(results)), "results": digest(results.to_csv())}
    return found | {
        "chosen": digest(whole.collected.chosen.to_csv()),
        "lift": digest(whole.lift.round(9).to_csv()),
    }


def mixture(config: str, **settings: Any) -> Callable[[Path], dict[str, str]]:
    """A mixture of two local baselines and a shipped configuration: its weights, test scores and
    predictions.
    """

    def work(folder: Path) -> dict[str, str]:
        from fedlit.mixture.mixture import Mixture

        trees = {"go_alone": "extra_trees", "grid": {"n_estimators": [20, 40]}}
        linear = {"go_alone": "ridge" if config == "diabetes" else "logistic_regression"}
        federated = {"config": f"{config}.yaml", "set": {"trainer.max_epochs": 2}}
        parts = {"trees": trees, "linear": linear, "federated": federated}
        content = {"parts": parts, "admit": False, **settings}
        trainer = {"default_root_dir": str(folder)}
        whole = Mixture(
            {"mixture": content, "seed": 8, "folds": 2, "name": "mixture", "trainer": trainer}
        )
        whole.fit(quiet=True)
        whole.test(quiet=True)
        whole.predict(quiet=True)
        assert whole.folder is not None
        found = {"weights": digest((whole.folder / "mixture.json").read_text())}
        for path in sorted(
            [whole.folder / "test.csv", *(whole.folder / "predictions").rglob("*.csv")]
        ):
            found[path.name] = digest(path.read_text())
        return found

    return work


def cases() -> dict[str, Callable[[Path], dict[str, str]]]:
    """Name → what computes it, in a fresh folder."""
    import federations

    from_tests = {**federations.METHODS, **federations.CLUSTERED}
    found = {
        f"{name} / {engine}": contract(name, engine) for name in from_tests for engine in ENGINES
    }
    files = sorted((Path(os.environ["CHECKOUT"]) / "configs").glob("*.yaml"))
    shipped = [path.stem for path in files if "\nmixture:" not in path.read_text(encoding="utf-8")]
    for name in shipped:
        if name.startswith(DATA):
            found[f"config {name}"] = config(name)
    for engine in ENGINES:
        found[f"config quickstart / {engine}"] = config("quickstart", f"--model.engine={engine}")
        found[f"config heart_gl / {engine}"] = config(
            "heart_gl", f"--model.engine={engine}", "--model.threads=2"
        )
    found["config heart_gl / compiled"] = config("heart_gl", "--model.kernels=compiled")
    many = ("--data.source=fedlit.Partition", "--data.source.source=fedlit.Bundled")
    many += ("--data.source.source.clients=[digits]", "--data.source.clients=8")
    found["eight alike, stacked"] = config("quickstart", *many)
    found["eight alike, stacked, compiled"] = config(
        "quickstart", *many, "--model.kernels=compiled"
    )
    found["eight alike, half of them a round"] = config(
        "quickstart", *many, "--exchange.participation=0.5"
    )
    found["study"] = study
    for how in ("fitted", "together"):
        found[f"mixture quickstart / {how}"] = mixture("quickstart", weights=how)
        found[f"mixture diabetes / {how}"] = mixture("diabetes", weights=how)
    return found


ENGINES = ("plain", "threads", "auto")


def serve(only: str) -> None:
    """Print one JSON line for each case of this checkout."""
    checkout = os.environ["CHECKOUT"]
    sys.path[:0] = [checkout, str(Path(checkout) / "tests")]
    os.chdir(tempfile.mkdtemp())
    import fedlit

    assert fedlit.__file__.startswith(checkout), fedlit.__file__
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name, work in cases().items():
        if fnmatch.fnmatchcase(name, only):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found = work(Path(folder))
                except BaseException as error:
                    found = {"failed": f"{type(error).__name__}: {str(error)[:400]}"}
            print(json.dumps([name, found]), file=answers, flush=True)


def answers(checkout: Path, only: str, cache: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Of a checkout, from the cache where it is clean and was asked before."""
    git = ["git", "-C", str(checkout)]
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    dirty = subprocess.run(
        [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
    ).stdout
    kept = cache / f"{commit}-{digest_text(only)}.json"
    if not dirty and kept.is_file():
        yield from json.loads(kept.read_text())
        return
    environment = {
        **os.environ,
        "CHECKOUT": str(checkout.resolve()),
        "PYTHONPATH": str(checkout.resolve()),
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", "--only", only]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(json.loads(line))
            yield found[-1]
    if not dirty and process.returncode == 0:
        cache.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found))


def digest_text(text: str) -> str:
    """Short."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fedlit-bits")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.only)
        return 0
    old, *others = arguments.checkouts
    expected = dict(answers(old, arguments.only, arguments.cache))
    print(
        f"{old}: {len(expected)} cases, {sum('failed' in own for own in expected.values())} failed"
    )
    wrong = 0
    for new in others:
        for name, found in answers(new, arguments.only, arguments.cache):
            before = expected.pop(name, {})
            parts = [part for part in {**before, **found} if before.get(part) != found.get(part)]
            wrong += bool(parts)
            print(
                f"{'DIFFERENT' if parts else 'same     '} {name}"
                + "".join(f"\n    {p}: {before.get(p)} → {found.get(p)}" for p in parts),
                flush=True,
            )
        print(f"{wrong} differ; not computed there: {', '.join(expected) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

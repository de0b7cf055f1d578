"""Runs and checkpoints that somebody wrote to harm who opens them: nothing of theirs runs, a
message says so.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from drill.federation import TESTS, import_all
from drill.forks import ended, kill, start, told

sys.path.insert(0, str(TESTS))

Rows = list[tuple[str, int, int, str]]
PATIENCE = 120
MEMORY = 12 * 2**30


def hostile(folder: Path, tries: int) -> Rows:
    """See the module. A *canary* is a file that none of it may make."""
    import_all()
    import hostile as corpus  # of the tests

    import fedlit.cli.trained  # noqa: F401
    from fedlit.run.config import read_yaml

    honest = folder / "honest"
    run = _trained(honest)
    canary = folder / "canary"
    text = (run / "config.yaml").read_text(encoding="utf-8")
    plain = read_yaml(run / "config.yaml")
    rows = list[tuple[str, int, int, str]]()

    def opened(name: str, number: int, commands: Sequence[list[str]], wanted: Callable[[int, str], str],
               change: Callable[[Path], None]) -> str:  # fmt: skip
        """What was wrong when a changed copy of the run was opened."""
        place = folder / f"{name}-{number}"
        copied = place / "copied" / "version_0"
        shutil.copytree(run, copied)
        corpus.plant(copied, canary)
        change(copied)
        before = _files(place)
        for command in commands:
            words = [word.replace("RUN", str(copied)) for word in command]
            log = place.with_suffix(".log")
            log.unlink(missing_ok=True)
            process = start(lambda words=words: _command(words, place), log)
            code = ended(process, PATIENCE)
            said = told(log, 100_000)
            wrong = _wrong(code, said) or wanted(code or 0, said)
            wrong = wrong or ("the canary was made" if canary.exists() else "")
            outside = [
                str(one)
                for one in _files(place) - before
                if copied not in one.parents and one != log
            ]
            wrong = wrong or (f"wrote {outside[0]}" if outside else "")
            if wrong:
                kill(process)
                canary.unlink(missing_ok=True)
                return f"{' '.join(words[:1])}: {wrong}: {said[-300:]}"
        shutil.rmtree(place)
        return ""

    def drill(name: str, found: dict[str, str]) -> None:
        wrong = [f"{case} ({own})" for case, own in found.items() if own]
        note = "; ".join(wrong[:20]) or "nothing of it ran, one message each"
        rows.append((name, len(found), len(found) - len(wrong), note))

    test = ["test", "--config", "RUN/config.yaml", "--ckpt_path", "RUN/checkpoints/last.ckpt"]
    rows_file = folder / "rows.csv"
    _some_rows(rows_file)
    predict = [
        "predict",
        "--run",
        "RUN",
        "--client",
        "north",
        "--data",
        str(rows_file),
        "--out",
        "scored.csv",
    ]
    export = ["export", "--run", "RUN", "--client", "north"]
    go_on = [
        "fit",
        "--config",
        "quickstart",
        "--ckpt_path",
        "RUN/checkpoints/last.ckpt",
        "--trainer.max_epochs=2",
    ]

    def changed(key: str, value: object) -> Callable[[Path], None]:
        import yaml

        return lambda copied: (copied / "config.yaml").write_text(
            yaml.safe_dump(corpus.put(plain, key, value, copied, canary), sort_keys=False), encoding="utf-8"
        ) and None  # fmt: skip

    ways = [[test, predict], [test, export], [test, go_on]]
    drill("hostile configurations", {
        case: opened("refused", number, ways[number % 3], _refused, changed(*change))
        for number, (case, change) in enumerate(corpus.REFUSED.items())
    })  # fmt: skip
    drill("files that are no configuration", {
        case: opened("text", number, [test, predict], _refused,
                     lambda copied, make=make: (copied / "config.yaml").write_bytes(make(text)) and None)
        for number, (case, make) in enumerate(corpus.TEXTS.items())
    })  # fmt: skip
    made = corpus.checkpoints(run / "checkpoints" / "last.ckpt", folder / "checkpoints", canary)
    drill("hostile checkpoints", {
        case: opened("checkpoint", number, [predict] if case in corpus.OF_CLIENTS else [test, predict, go_on], _refused,
                     lambda copied, path=path: shutil.copyfile(path, copied / "checkpoints" / "last.ckpt") and None)
        for number, (case, path) in enumerate(made.items())
    })  # fmt: skip
    return rows


def _trained(folder: Path) -> Path:
    """A run of somebody else's, by its folder."""
    folder.mkdir()
    typed = ["fit", "--config", "quickstart", "--trainer.max_epochs=1", "--board.pictures=0"]
    code = ended(start(lambda: _command(typed, folder), folder / "log"), 300)
    if code != 0:
        raise SystemExit(told(folder / "log"))
    return folder / "lightning_logs" / "quickstart" / "version_0"


def _command(words: list[str], folder: Path) -> int:
    from fedlit.__main__ import main

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(folder)
    return main(words)


def _some_rows(path: Path) -> None:
    from fedlit import Hospitals

    Hospitals().new_rows("north", 5).to_csv(path, index=False)


def _files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


def _wrong(code: int | None, said: str) -> str:
    if code is None:
        return f"had not ended after {PATIENCE} s"
    if code < 0:
        return f"ended by signal {-code}"
    return "a traceback" if "Traceback" in said else ""


def _refused(code: int, said: str) -> str:
    if code == 0:
        return "exit status 0"
    return "" if "fedlit: error:" in said and "expected" in said else "no message of fedlit's"

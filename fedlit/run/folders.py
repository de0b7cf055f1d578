"""The folders of runs: finds them and their checkpoints, and ensures that only one process at a
time writes to a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fedlit.errors import ConfigError, did_you_mean
from fedlit.files import advice, check_archive, clear_partials, exclusive, reason, write_text
from fedlit.show.shown import say
from fedlit.train.whole import CHECKPOINTS, LAST, PREVIOUS

CONFIG = "config.yaml"

_LONGEST = 200  # bytes of a name that file systems take, with something before and after it


@cache
def say_once(text: str) -> None:
    """Print a notice only once, even if several steps of one command would repeat it."""
    say(text)


def check_name(name: str, key: str) -> None:
    """Refuse a folder name that leads elsewhere, or that has a special meaning for a file system or
    a shell.

    Args:
        name: the name of runs, of a method, or of a client.
        key: the key or flag of the name, for the message.

    Raises:
        ConfigError: the name is not allowed; the message always states the rules.

    Example:
        >>> check_name("../../x", "--name")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: --name: expected a folder's name (printable, no slash, no space
            at its ends, ...
    """
    plain = name.isprintable() and name == name.strip() and not {"/", "\\"} & set(name)
    if not plain or not name.strip(".") or name[0] in "-~" or len(os.fsencode(name)) > _LONGEST:
        raise ConfigError(
            f"{key}: expected a folder's name (printable, no slash, no space at its ends, no - or "
            f"~ at its beginning, at most {_LONGEST} bytes), found {name!r}; take letters, digits "
            "and _"
        )


def _versions(parent: Path) -> dict[int, Path]:
    """Map each number to its ``version_<n>`` folder, the newest first."""
    folders = {path.name.removeprefix("version_"): path for path in parent.glob("version_*")}
    return dict(
        sorted(
            ((int(number), path) for number, path in folders.items() if number.isdigit()),
            reverse=True,
        )
    )


def newest_run(root: Path, name: str) -> Path | None:
    """Return the newest ``version_<n>`` folder of a name in which training began, or None if there
    is none.

    Raises:
        ConfigError: it has no checkpoint; to use an older run instead would be a surprise.
    """
    begun = [path for path in _versions(root / name).values() if (path / CHECKPOINTS).is_dir()]
    if not begun:
        return None
    if not any((begun[0] / CHECKPOINTS / name).is_file() for name in (LAST, PREVIOUS)):
        raise ConfigError(
            f"expected a checkpoint in {begun[0]}, the newest run of {name}, found none (it ended "
            "before its first, or checkpoints were off); start a new one, or give --ckpt_path "
            "FILE of an older one"
        )
    return begun[0]


def _usable(last: Path) -> Path:
    """Return the last checkpoint. If it is damaged or missing, print a notice and return the one
    before it.

    Raises:
        ConfigError: neither of them is whole.
    """
    problems = list[str]()
    for path in (last, last.with_name(PREVIOUS)):
        try:
            check_archive(path)
        except FileNotFoundError:
            problems.append(f"{path}: it is gone")
        except ConfigError as error:
            problems.append(str(error))
        else:
            if problems:
                say_once(f"{problems[0]}. The one before it is used: {path}")
            return path
    raise ConfigError(
        f"{'; '.join(problems)}. There is no checkpoint to go on from (was checkpointing off?): start "
        "a new run"
    )


def find_run(run: str | Path) -> Path:
    """Find a run's folder, given its path, the folder of its runs, or the name of its
    configuration.

    Args:
        run: a run's folder; or a folder of runs or the name of a configuration, which stands for
            the newest run whose training began, otherwise for the newest run.

    Raises:
        ConfigError: there is no such run.
    """
    path = Path(run)
    name = path.stem if path.suffix in (".yaml", ".yml") else path.name
    for folder in (path, Path("lightning_logs", name)):
        if (folder / CHECKPOINTS).is_dir():
            return folder
        runs = list(_versions(folder).values())
        begun = (version for version in runs if (version / CHECKPOINTS).is_dir())
        if runs:
            return next(begun, runs[0])
    if path.is_dir():
        return path
    raise ConfigError(
        f"--run: expected a run's folder, such as {Path('lightning_logs', name, 'version_0')}, or "
        f"the name of a configuration that was trained, found none of the name {run}."
        + did_you_mean(
            name,
            (version.name for version in Path("lightning_logs").glob("*") if _versions(version)),
        )
    )


def run_folder(checkpoint: Path) -> Path | None:
    """Return the run's folder that contains a checkpoint, or None if it is not in one."""
    folder = checkpoint.parent.parent
    if checkpoint.parent.name == CHECKPOINTS and folder.name.startswith("version_"):
        return folder
    return None


def new_folder(root: Path, name: str) -> Path:
    """Create the next ``version_<n>`` folder. Two processes that start at the same time get
    different folders.

    Raises:
        ConfigError: the folder cannot be created.
    """
    parent = root / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = next(iter(_versions(parent)), -1) + 1
        while True:
            try:
                (parent / f"version_{number}").mkdir()
                return parent / f"version_{number}"
            except FileExistsError:
                number += 1
    except OSError as error:
        raise ConfigError(
            f"{parent}: expected a folder that can be written to, found: {reason(error)}; "
            f"{advice(error)}, or set trainer.default_root_dir"
        ) from error


def to_resume(
    root: Path, name: str, ckpt_path: str | Path | None
) -> tuple[Path | None, Path | None]:
    """Return (checkpoint, folder to continue in) for a ``--ckpt_path``.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    if ckpt_path is None:
        return None, None
    if ckpt_path == "last":
        folder = newest_run(root, name)
        if folder is None:
            raise ConfigError(
                "--ckpt_path last: expected an earlier run with a checkpoint in "
                f"{(root / name).resolve()}, found none; leave --ckpt_path out to start one"
            )
        return _usable(folder / CHECKPOINTS / LAST), folder
    path = Path(ckpt_path).absolute()
    if ckpt_path == "best":
        raise ConfigError(
            "--ckpt_path best: expected last or a full checkpoint, found that the best hold "
            "weights only"
        )
    if not path.is_file():
        raise ConfigError(
            "--ckpt_path: expected last, best (to score) or a checkpoint file, found no file "
            f"{path}"
        )
    return path, run_folder(path)


def to_score(
    root: Path, name: str, ckpt_path: str | Path | None, own: Path | None, purpose: str
) -> tuple[Path, Path | None]:
    """Return (checkpoint, folder to write to) for a ``--ckpt_path``.

    Args:
        root: the folder of all runs.
        name: the name of this configuration's runs.
        ckpt_path: a file, ``best``, ``last``, or None for the last one.
        own: the folder of the run that was just trained; the newest one if None.
        purpose: the purpose, for messages.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    if ckpt_path not in (None, "last", "best"):
        checkpoint, folder = to_resume(root, name, ckpt_path)
        assert checkpoint is not None
        return checkpoint, folder
    folder = own or newest_run(root, name)
    if folder is None:
        raise ConfigError(
            f"{purpose}: expected a trained run in {root / name}, found none; run fit first or "
            "give --ckpt_path"
        )
    last = _usable(folder / CHECKPOINTS / LAST)
    if ckpt_path == "best":
        return _best(last), folder
    return last, folder


def _best(last: Path) -> Path:
    """Return the best checkpoint, which is the one that the last checkpoint names; the last
    checkpoint if each client ended with the best of its epochs (``model.keep``).

    Raises:
        ConfigError: there is no best checkpoint.
    """
    from fedlit.train.manifest import read_checkpoint

    header = read_checkpoint(last, resumable=False)
    named = {
        Path(str(callback.get("best_model_path", ""))).name
        for callback in header.get("callbacks", {}).values()
    } - {""}
    for file in last.parent.glob("best-*.ckpt"):
        if file.name in named:
            return file
    if header["fedlit"].get("personal", {}).get("done"):
        return last
    raise ConfigError(
        f"--ckpt_path best: expected the best-*.ckpt that {last} names, found none "
        "(checkpoint.best was 0, or it was removed); give --ckpt_path last"
    )


def find_trained(run: str | Path, ckpt_path: str, purpose: str) -> tuple[Path, Path]:
    """Return (folder, checkpoint) of a run, given its folder or its configuration.

    Args:
        run: see :func:`find_run`.
        ckpt_path: see :func:`to_score`.
        purpose: the purpose, for messages.

    Raises:
        ConfigError: there is no such run, or no such checkpoint.
    """
    folder = find_run(run)
    checkpoint, _ = to_score(folder.parent.parent, folder.parent.name, ckpt_path, folder, purpose)
    return folder, checkpoint


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Prevent other processes from writing to a run's folder inside the block. The folder is
    removed if nothing was written.

    Raises:
        ConfigError: another process is writing to the folder.
    """
    do = "wait for it or end it; without --ckpt_path a new run begins, in a folder of its own"
    try:
        with exclusive(
            folder / ".lock", f"{folder}: expected no other process that writes there", do
        ):
            clear_partials(folder / CHECKPOINTS)
            yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def begin(folder: Path, text: str | None, step: int) -> None:
    """Mark a folder as a run's and write its configuration, after any checkpoint has been accepted.
    If a resumed run changes the configuration, the earlier one is kept next to it.

    Args:
        folder: the folder of the run.
        text: the text of its configuration; None for a run that was made in Python.
        step: the number of aligned steps so far.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    config = folder / CONFIG
    earlier = None
    try:
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        if text is None:
            return
        if config.exists() and config.read_text(encoding="utf-8") != text:
            number = len(list(folder.glob("config_*_until_step_*.yaml")))
            earlier = folder / f"config_{number}_until_step_{step}.yaml"
        write_text(text, config, before=earlier)
    except OSError as error:
        raise ConfigError(
            f"{folder}: expected a folder that can be written to, found: {reason(error)}; nothing "
            f"of this training could be kept; {advice(error)}, or set trainer.default_root_dir"
        ) from error

"""The folders of runs: where they lie, which checkpoint is meant, and one process at a time that writes to one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fedlit.archives import check_archive
from fedlit.errors import ConfigError, did_you_mean
from fedlit.files import advice, clear_partials, reason, write_text
from fedlit.locks import exclusive
from fedlit.show.shown import say
from fedlit.train.whole import LAST, PREVIOUS

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "begin",
    "check_name",
    "find_run",
    "find_trained",
    "new_folder",
    "newest_run",
    "run_folder",
    "say_once",
    "to_resume",
    "to_score",
    "writing",
]

CHECKPOINTS, CONFIG = "checkpoints", "config.yaml"

_LONGEST = 200  # bytes of a name that file systems take, with something before and after it


@cache
def say_once(text: str) -> None:
    """Print a notice that several steps of one command would repeat."""
    say(text)


def check_name(name: str, key: str) -> None:
    """Refuse a name of a folder that would lead elsewhere, or that a file system or a shell takes for something else.

    Args:
        name: of runs, of a method, of a client.
        key: where it stands, for the message.

    Raises:
        ConfigError: always says the rules.

    Example:
        >>> check_name("../../x", "--name")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: --name: expected a folder's name (printable, no slash, no space at its ends, ...
    """
    plain = name.isprintable() and name == name.strip() and not {"/", "\\"} & set(name)
    if not plain or not name.strip(".") or name[0] in "-~" or len(os.fsencode(name)) > _LONGEST:
        raise ConfigError(
            f"{key}: expected a folder's name (printable, no slash, no space at its ends, no - or ~ at its beginning, "
            f"at most {_LONGEST} bytes), found {name!r}; take letters, digits and _"
        )


def _versions(parent: Path) -> dict[int, Path]:
    """The ``version_<n>`` folders by number, the newest first."""
    folders = {path.name.removeprefix("version_"): path for path in parent.glob("version_*")}
    return dict(sorted(((int(number), path) for number, path in folders.items() if number.isdigit()), reverse=True))


def newest_run(root: Path, name: str) -> Path | None:
    """The newest ``version_<n>`` folder of a name in which training began, None if there is none.

    Raises:
        ConfigError: it has no checkpoint: an older run in its place would be a surprise.
    """
    begun = [path for path in _versions(root / name).values() if (path / CHECKPOINTS).is_dir()]
    if not begun:
        return None
    if not _has_any(begun[0]):
        older = next((path / CHECKPOINTS / LAST for path in begun if _has_any(path)), "FILE")
        raise ConfigError(
            f"expected a checkpoint in {begun[0]}, the newest run of {name}, found none (it ended before its first, or "
            f"checkpoints were off); start a new one, or give --ckpt_path {older}"
        )
    return begun[0]


def _has_any(folder: Path) -> bool:
    return any((folder / CHECKPOINTS / name).is_file() for name in (LAST, PREVIOUS))


def _usable(last: Path) -> Path:
    """The last checkpoint; the one before it, with a notice, where the last one is damaged or gone.

    Raises:
        ConfigError: there is no whole one.
    """
    found = list[str]()
    for path in (last, last.with_name(PREVIOUS)):
        try:
            check_archive(path)
        except FileNotFoundError:
            found.append(f"{path}: it is gone")
        except ConfigError as error:
            found.append(str(error))
        else:
            if found:
                say_once(f"{found[0]}. The one before it is used: {path}")
            return path
    raise ConfigError(
        f"{'; '.join(found)}. There is no checkpoint to go on from (was checkpointing off?): start a new run"
    )


def find_run(run: str | Path, fits: Callable[[Path], bool] | None = None) -> Path:
    """A run's folder, whichever way it is named.

    Args:
        run: a run's folder; a folder of runs or the name of a configuration for its newest run that fits, else the
            newest.
        fits: whether a run has what is asked of it; that its training began if None.

    Raises:
        ConfigError: there is none.
    """
    fits = fits or (lambda folder: (folder / CHECKPOINTS).is_dir())
    path = Path(run)
    name = path.stem if path.suffix in (".yaml", ".yml") else path.name
    for folder in (path, Path("lightning_logs", name)):
        if fits(folder):
            return folder
        if runs := list(_versions(folder).values()):
            return next((own for own in runs if fits(own)), runs[0])
    if path.is_dir():
        return path
    raise ConfigError(
        f"--run: expected a run's folder, such as {Path('lightning_logs', name, 'version_0')}, or the name of a "
        f"configuration that was trained, found none of the name {run}."
        + did_you_mean(name, (own.name for own in Path("lightning_logs").glob("*") if _versions(own)))
    )


def run_folder(checkpoint: Path) -> Path | None:
    """The run's folder that a checkpoint lies in, None if it lies elsewhere."""
    inside = checkpoint.parent.name == CHECKPOINTS and checkpoint.parent.parent.name.startswith("version_")
    return checkpoint.parent.parent if inside else None


def new_folder(root: Path, name: str) -> Path:
    """Make the next ``version_<n>``; two processes that start at once get two.

    Raises:
        ConfigError: it cannot be made.
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
            f"{parent}: expected a folder that can be written to, found: {reason(error)}; {advice(error)}, or set "
            "trainer.default_root_dir"
        ) from error


def to_resume(root: Path, name: str, ckpt_path: str | Path | None) -> tuple[Path | None, Path | None]:
    """(checkpoint, folder to continue in) of a ``--ckpt_path``.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    if ckpt_path is None:
        return None, None
    if ckpt_path == "last":
        folder = newest_run(root, name)
        if folder is None:
            raise ConfigError(
                f"--ckpt_path last: expected an earlier run with a checkpoint in {(root / name).resolve()}, found "
                "none; leave --ckpt_path out to start one"
            )
        return _usable(folder / CHECKPOINTS / LAST), folder
    path = Path(ckpt_path).absolute()
    if ckpt_path == "best":
        raise ConfigError("--ckpt_path best: expected last or a full checkpoint, found that the best hold weights only")
    if not path.is_file():
        raise ConfigError(f"--ckpt_path: expected last, best (to score) or a checkpoint file, found no file {path}")
    return path, run_folder(path)


def to_score(
    root: Path, name: str, ckpt_path: str | Path | None, own: Path | None, purpose: str
) -> tuple[Path, Path | None]:
    """(checkpoint, folder to write to) of a ``--ckpt_path``.

    Args:
        root: the folder of all runs.
        name: of this configuration's runs.
        ckpt_path: a file, ``best``, ``last``, or None for the last one.
        own: the folder of the run that was just trained; the newest one if None.
        purpose: what for; messages say so.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    if ckpt_path not in (None, "last", "best"):
        found, folder = to_resume(root, name, ckpt_path)
        assert found is not None
        return found, folder
    folder = own or newest_run(root, name)
    if folder is None:
        raise ConfigError(
            f"{purpose}: expected a trained run in {root / name}, found none; run fit first or give --ckpt_path (runs "
            "that were trained together are scored by fedlit.test_together)"
        )
    last = _usable(folder / CHECKPOINTS / LAST)
    return _best(last) if ckpt_path == "best" else last, folder


def _best(last: Path) -> Path:
    """The best checkpoint, which is the one that the last one names; the newest, with a notice, where that is gone. It
    is the last one itself where each client ended with the best of its epochs (``model.keep``).

    Raises:
        ConfigError: there is none.
    """
    from fedlit.train.manifest import read_checkpoint

    header = read_checkpoint(last, resumable=False)
    named = {Path(str(own.get("best_model_path", ""))).name for own in header.get("callbacks", {}).values()} - {""}
    files = sorted(last.parent.glob("best-*.ckpt"), key=os.path.getmtime)
    if known := [file for file in files if file.name in named]:
        return known[0]
    if files:
        if named:
            say_once(f"{last} names {min(named)} as the best, which is gone; {files[-1].name} is used")
        return files[-1]
    if header["fedlit"].get("personal", {}).get("done"):
        return last
    raise ConfigError(
        f"--ckpt_path best: expected a best-*.ckpt in {last.parent}, found none (checkpoint.best was 0, or none could "
        "be written, or it was removed); give --ckpt_path last"
    )


def find_trained(run: str | Path, ckpt_path: str, purpose: str) -> tuple[Path, Path]:
    """(folder, checkpoint) of a run that is named by its folder or its configuration.

    Args:
        run: see :func:`find_run`.
        ckpt_path: see :func:`to_score`.
        purpose: what for; messages say so.

    Raises:
        ConfigError: there is no such run, or no such checkpoint.
    """
    folder = find_run(run)
    checkpoint, _ = to_score(folder.parent.parent, folder.parent.name, ckpt_path, folder, purpose)
    return folder, checkpoint


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Have no other process write to a run's folder inside the block; the folder goes if nothing was written.

    Raises:
        ConfigError: another process writes there.
    """
    do = "wait for it or end it; without --ckpt_path a new run begins, in a folder of its own"
    try:
        with exclusive(folder / ".lock", f"{folder}: expected no other process that writes there", do):
            clear_partials(folder / CHECKPOINTS, ours=True)
            clear_partials(folder, ours=False)
            yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def begin(folder: Path, text: str | None, step: int) -> None:
    """Mark a folder as a run's and write its configuration, now that any checkpoint has been accepted. A resumed run
    that changes the configuration keeps the earlier one beside it.

    Args:
        folder: the run's.
        text: of its configuration; None for a run that was made in Python.
        step: aligned steps behind it.

    Raises:
        ConfigError: nothing can be written there.
    """
    config, kept = folder / CONFIG, None
    try:
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        if text is None:
            return
        if config.exists() and config.read_text(encoding="utf-8") != text:
            number = len(list(folder.glob("config_*_until_step_*.yaml")))
            kept = folder / f"config_{number}_until_step_{step}.yaml"
        write_text(text, config, before=kept)
    except OSError as error:
        raise ConfigError(
            f"{folder}: expected a folder that can be written to, found: {reason(error)}; nothing of this training "
            f"could be kept; {advice(error)}, or set trainer.default_root_dir"
        ) from error

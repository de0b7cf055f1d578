"""Where runs lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fedlit.archives import check_archive
from fedlit.errors import ConfigError, did_you_mean
from fedlit.files import advice, reason
from fedlit.show.shown import say
from fedlit.train.whole import LAST, PREVIOUS

__all__ = [
    "CHECKPOINTS",
    "check_name",
    "find_run",
    "find_trained",
    "new_folder",
    "newest_run",
    "run_folder",
    "to_resume",
    "to_score",
    "used",
]

CHECKPOINTS = "checkpoints"

_LONGEST = 200  # bytes of a name that file systems take, with something before and after it
_told: set[Path] = set()


def check_name(name: str, key: str) -> None:
    """Refuse a name that is to be a folder's and would be something else: a way elsewhere, or none.

    Args:
        name: of runs, of a method, of a client.
        key: where it stands, for the message.

    Raises:
        ConfigError: says why.

    Example:
        >>> check_name("../../x", "--name")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: --name: expected a folder's name, without a slash, found '../../x'; take 'x', say
    """
    ending = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    better = "".join(sign for sign in ending if sign.isprintable()).strip(" .~-") or "run"
    if "/" in name or "\\" in name:
        expected = "without a slash"
    elif not name.strip() or name.strip(".") == "" or name != name.strip():
        expected = "that is more than dots, and has no space at its ends"
    elif not name.isprintable():
        expected = "of signs that can be printed"
    elif name.startswith(("-", "~")):
        expected = "that begins with neither - nor ~"
    elif len(os.fsencode(name)) > _LONGEST:
        expected, better = f"of at most {_LONGEST} bytes", better[: _LONGEST // 4]
    else:
        return
    raise ConfigError(f"{key}: expected a folder's name, {expected}, found {name!r}; take {better!r}, say")


def _versions(parent: Path) -> dict[int, Path]:
    """The ``version_<n>`` folders by number."""
    folders = {path.name.removeprefix("version_"): path for path in parent.glob("version_*")}
    return {int(number): path for number, path in folders.items() if number.isdigit()}


def newest_run(root: Path, name: str) -> Path | None:
    """The newest ``version_<n>`` folder of a name in which training began, None if there is none.

    Raises:
        ConfigError: it has no checkpoint: an older run in its place would be a surprise.
    """
    begun = {number: path for number, path in _versions(root / name).items() if (path / CHECKPOINTS).is_dir()}
    if not begun:
        return None
    newest = begun[max(begun)]
    if not _has_any(newest):
        older = [path / CHECKPOINTS / LAST for _, path in sorted(begun.items()) if _has_any(path)]
        raise ConfigError(
            f"expected a checkpoint in {newest}, the newest run of {name}, found none (it ended before its first, or "
            f"checkpoints were off); start a new one, or give --ckpt_path {older[-1] if older else 'FILE'}"
        )
    return newest


def _has_any(folder: Path) -> bool:
    return any((folder / CHECKPOINTS / name).is_file() for name in (LAST, PREVIOUS))


def _usable(last: Path) -> Path:
    """The last checkpoint; the one before where it is damaged or gone, which is said.

    Raises:
        ConfigError: there is no whole one.
    """
    try:
        check_archive(last)
        return last
    except FileNotFoundError:
        found = "it is gone"
    except ConfigError as error:
        found = str(error)
    before = last.with_name(PREVIOUS)
    try:
        check_archive(before)
    except FileNotFoundError:
        raise ConfigError(f"{found}. None was written before it: start a new run") from None
    except ConfigError:
        raise ConfigError(f"{found}. The one before it, {before.name}, is damaged too: start a new run") from None
    if last not in _told:
        _told.add(last)
        say(f"{last if found == 'it is gone' else 'Checkpoint'}: {found}. The one before it is used: {before}")
    return before


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
        runs = [own for _, own in sorted(_versions(folder).items(), reverse=True)]
        if runs:
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
    """Make the next ``version_<n>``; two processes that start at once get two."""
    parent = root / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = max(_versions(parent), default=-1) + 1
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
                "--ckpt_path last: expected an earlier run with a checkpoint in "
                f"{(root / name).resolve()}, found none; "
                "leave --ckpt_path out to start one"
            )
        return _usable(folder / CHECKPOINTS / LAST), folder
    path = Path(ckpt_path).absolute()
    if ckpt_path == "best":
        raise ConfigError("--ckpt_path best: expected last or a full checkpoint, found that the best hold weights only")
    if not path.is_file():
        raise ConfigError(f"--ckpt_path: expected last, best (to score) or a checkpoint file, found no file {path}")
    return path, run_folder(path)


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


def used(checkpoint: Path) -> str:
    """A line that says which checkpoint is used, and, of the last one of a run that stopped early, that there is a
    better one.
    """
    config = checkpoint.parent.parent / "config.yaml"
    better = checkpoint.name in (LAST, PREVIOUS) and any(checkpoint.parent.glob("best-*.ckpt")) and config.is_file()
    if better and "EarlyStopping" in _beginning(config):
        return f"Using {checkpoint}: the last state of a run that stops early. --ckpt_path best takes its best"
    return f"Using {checkpoint}"


def _beginning(config: Path) -> str:
    with config.open(encoding="utf-8", errors="replace") as file:
        return file.read(2**22)


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
    folder: Path | None
    if ckpt_path in (None, "last", "best"):
        folder = own or newest_run(root, name)
        if folder is None:
            raise ConfigError(
                f"{purpose}: expected a trained run in {root / name}, found none; run fit first "
                "or give --ckpt_path (runs that were trained together are scored by fedlit.test_together)"
            )
        last = folder / CHECKPOINTS / LAST
        best = _best(folder / CHECKPOINTS) if ckpt_path == "best" else None
        if ckpt_path == "best" and best is None and _kept_best(last):
            ckpt_path = LAST  # each client has the best of its epochs there
        if ckpt_path == "best" and best is None:
            raise ConfigError(
                f"--ckpt_path best: expected a best-*.ckpt in {folder / CHECKPOINTS}, found none: checkpoint.best was "
                "0, or none could be written, or it was removed; give --ckpt_path last"
            )
        checkpoint = best if best is not None else _usable(last) if _has_any(folder) else last
    else:
        found, folder = to_resume(root, name, ckpt_path)
        assert found is not None
        checkpoint = found
    if not checkpoint.is_file():
        raise ConfigError(f"{purpose}: expected a checkpoint {checkpoint}, found none; was checkpointing off?")
    return checkpoint, folder


def _best(checkpoints: Path) -> Path | None:
    """The best checkpoint: the one that the last one takes for it, which belongs to it; else the newest, which is said
    where the last one says otherwise.
    """
    files = sorted(checkpoints.glob("best-*.ckpt"), key=os.path.getmtime)
    if not files:
        return None
    from fedlit.train.manifest import read_checkpoint

    last = checkpoints / LAST
    try:
        header = read_checkpoint(last, resumable=False)
    except (ConfigError, FileNotFoundError):
        return files[-1]
    states = header.get("callbacks", {}).values()
    named = {Path(str(own["best_model_path"])).name for own in states if own.get("best_model_path")}
    chosen = next((file for file in files if file.name in named), None)
    later = [file for file in files if _epoch(file) > header["epoch"]]
    told = ""
    if chosen is None and named:
        told = f"{last} takes {min(named)} for the best, which is gone; {files[-1].name} is used"
    elif chosen is not None and later:
        told = (
            f"{last} ends before {later[-1].name} was written, and takes {chosen.name} for the best, which is used; "
            f"give --ckpt_path {later[-1]} for the later one"
        )
    if told and last not in _told:
        _told.add(last)
        say(told)
    return chosen or files[-1]


def _epoch(best: Path) -> int:
    """Return the epoch in the name of a best checkpoint; -1 if there is none."""
    number = best.stem.removeprefix("best-")
    return int(number) if number.isdigit() else -1


def _kept_best(last: Path) -> bool:
    """Return whether a run ended with each client's best epoch (``model.keep``)."""
    from fedlit.train.manifest import read_checkpoint

    return last.is_file() and bool(read_checkpoint(last, resumable=False)["fedlit"].get("personal", {}).get("done"))

"""``fedlit init``: looks at the files of a folder and writes a configuration that trains as it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.show.shown import for_terminal
from fedlit.show.text import Verbatim


def init(
    folder: str,
    *,
    target: tuple[str, ...] = (),
    names: str | None = None,
    client_column: str | None = None,
    out: Path | None = None,
    force: bool = False,
) -> None:
    """Look at the tables of a folder, one client per file, and write a configuration that is ready to train.

    Its comments state every guess.

    Args:
        folder: a folder, a pattern such as 'sites/*.csv', or one file
        target: the column to predict; for one client alone, CLIENT=COLUMN (may be repeated)
        names: column names for files without a header, separated by commas
        client_column: the column of one file that names the client of each row, such as a school
        out: the file to write (default: the folder's name, here)
        force: overwrite an existing file
    """
    out = out or Path(f"{_stem(folder)}.yaml")
    _check(out, force)
    from fedlit.data.examine.propose import propose
    from fedlit.data.examine.written import some, written

    called = [name.strip() for name in names.split(",")] if names else None
    proposal = propose(folder, _targets(target), called, client_column)
    text = written(proposal, shlex.quote(str(out)))
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {out} cannot be written: {error.strerror or error}. Name another file.") from error
    for notes in proposal.notes.values():
        for note in some(notes):
            print(for_terminal(note, otherwise=80))
    print(for_terminal(f"\nWrote {out}. Next:"))
    for command in ("check --config {}", "fit --config {}", "test --config {} --ckpt_path best"):
        print(for_terminal(Verbatim(f"  fedlit {command.format(shlex.quote(str(out)))}")))


def _stem(folder: str) -> str:
    """Return the name of the configuration for these files."""
    if any(mark in folder for mark in "*?["):
        return "mine"
    path = Path(folder).expanduser()
    name = path.resolve().name
    return re.sub(r"[^\w-]+", "_", name.split(".")[0] if path.is_file() else name) or "mine"


def _check(out: Path, force: bool) -> None:
    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out: expected a name that ends in .yaml, found {out}.")
    if out.exists() and not force:
        raise ConfigError(f"{out}: already exists. Name another file with --out, or overwrite it with --force.")
    if not out.parent.is_dir():
        raise ConfigError(f"--out: expected a folder that is there, found {out.parent}. Make it, or name another.")


def _targets(given: Sequence[str]) -> dict[str | None, str]:
    """Map each client to the column to predict; None stands for all other clients."""
    made: dict[str | None, str] = {}
    for own in given:
        client, equals, column = own.partition("=")
        key = client if equals else None
        if key in made:
            raise ConfigError(
                f"--target: {key or 'all clients'}: expected one column, found {made[key]!r} and {own!r}."
            )
        made[key] = column if equals else own
    return made

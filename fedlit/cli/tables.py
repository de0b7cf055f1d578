"""``fedlit init``, ``check`` and ``recommend``: write a configuration for tables, find their
problems, and find out who should join.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedlit.errors import ConfigError, FedlitError, Told, expect
from fedlit.mixture.written import is_mixture
from fedlit.run.arguments import Asked, read
from fedlit.run.config import find_config, shown
from fedlit.show.shown import Printer, for_terminal, say
from fedlit.show.text import Verbatim, counted, shorten

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source
    from fedlit.data.table import ClientTable

# keys of data that change tables and need all of fedlit to be understood
_SHAPED = ("leave_out", "mutations")


def init(
    files: list[str] | None = None,
    *,
    target: tuple[str, ...] = (),
    task: str | None = None,
    time: tuple[str, ...] = (),
    event: tuple[str, ...] = (),
    entry: tuple[str, ...] = (),
    unit: Literal["day", "week", "month", "year"] | None = None,
    client_column: str | None = None,
    out: Path | None = None,
    force: bool = False,
    example: bool = False,
) -> None:
    """Look at tables, one client per file, and write a configuration that is ready to train.

    Its first lines state every guess.

    Args:
        files: the files, a folder, or a pattern such as 'sites/*.csv'
        target: the column to predict; for one client alone, CLIENT=COLUMN (may be repeated)
        task: survival predicts the time to an event, and names columns instead of a target
        time: the column of the time at which observation ended; or CLIENT=COLUMN, as for target
        event: the column that says whether the event ended it (1) or not (0)
        entry: the column of the time from which a row was observed, where rows entered late
        unit: what times are counted in: day, week, month or year
        client_column: the column of one file that names the client of each row, such as a school
        out: the file to write (default: the name of the one file or folder, else mine.yaml, here)
        force: overwrite an existing file
        example: write the tables of three made-up hospitals into this folder instead
    """
    if example:
        expect(not files, "--example", "no files, because it writes its own", files)
        _write_example()
        return
    advice = "to get example tables, run fedlit init --example"
    expect(
        bool(files),
        "fedlit init",
        "the clients' files, a folder or a pattern",
        Told("none"),
        advice,
    )
    patterns = files or []
    out = out or Path(f"{_stem(patterns)}.yaml")
    expect(out.suffix in (".yaml", ".yml"), "--out", "a name that ends in .yaml", str(out))
    expect(
        force or not out.exists(),
        "--out",
        "a new file",
        str(out),
        "name another one, or overwrite it with --force",
    )
    from fedlit.data.examine.propose import places_by_client, propose, written
    from fedlit.data.examine.propose_roles import Roles, propose_roles

    named = {"time": time, "event": event, "entry": entry}
    if task is None:
        for key, value in {**named, "unit": unit}.items():
            expect(not value, f"--{key}", "--task survival beside it", Told("no --task"))
        proposal = propose(patterns, _targets("target", target), client_column)
    else:
        advice = f"--task {task} names its columns with --time and --event"
        expect(not target, "--target", "none", shorten(target), advice)
        columns = {role: _targets(role, options) for role, options in named.items() if options}
        settings = {"unit": unit} if unit else {}
        roles = Roles(task, columns, settings)
        proposal = propose_roles(places_by_client(patterns, client_column), roles, client_column)
    text = written(proposal, shlex.quote(str(out)))
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--out: {out} cannot be written: {error.strerror or error}. Name another file."
        ) from error
    for note in proposal.note_lines():
        print(for_terminal(note, otherwise=80))
    print(for_terminal(f"\nWrote {out}. Next:"))
    for command in ("check --config {}", "fit --config {}", "test --config {} --ckpt_path best"):
        print(for_terminal(Verbatim(f"  fedlit {command.format(shlex.quote(str(out)))}")))


def _write_example() -> None:
    """Write the tables of the made-up hospitals, and new rows of one of them, into the working
    directory.
    """
    from fedlit.data.sources.hospitals import TARGET, Hospitals

    hospitals = Hospitals()
    frames = {f"{client}.csv": hospitals.frame(client) for client in hospitals.clients}
    clients = " ".join(frames)
    frames["tomorrow.csv"] = hospitals.new_rows("north")
    for name in frames:
        free = not Path(name).exists()
        expect(
            free,
            "--example",
            f"no file {name}",
            Told(f"{name} in {Path.cwd()}"),
            "go to an empty folder",
        )
    for name, frame in frames.items():
        try:
            frame.to_csv(name, index=False, mode="x")
        except OSError as error:
            message = (
                f"--example: {name} cannot be written: {error.strerror or error}. Go to another "
                "folder."
            )
            raise ConfigError(message) from error
    print(
        for_terminal(
            f"Wrote {', '.join(frames)}: three made-up hospitals, and patients of north without a "
            "label."
        )
    )
    print(for_terminal("\nNext:"))
    print(for_terminal(Verbatim(f"  fedlit init {clients} --target {TARGET}")))


def _stem(patterns: Sequence[str]) -> str:
    """Return the name of the configuration for these files."""
    if len(patterns) > 1 or any(mark in patterns[0] for mark in "*?["):
        return "mine"
    path = Path(patterns[0]).expanduser()
    name = path.resolve().name
    if path.is_file():
        name = name.split(".")[0]
    return re.sub(r"[^\w-]+", "_", name) or "mine"


def _targets(role: str, options: Sequence[str]) -> dict[str | None, str]:
    """Map each client to the column to predict; None stands for all other clients."""
    targets: dict[str | None, str] = {}
    for option in options:
        key: str | None = None
        column = option
        if "=" in option:
            key, _, column = option.partition("=")
        columns = [targets.get(key), column]
        expect(key not in targets, f"--{role}: {key or 'all clients'}", "one column", columns)
        targets[key] = column
    return targets


def check(
    *keys: str,
    config: tuple[str, ...] = (),
    fix: Path | None = None,
    format: Literal["text", "json"] = "text",
) -> None:
    """Look at the tables of a configuration, and fix what has one remedy.

    Shows rows, types, missing cells and classes; columns that reveal the target; similar names,
    units, categories and labels of several clients; the same rows or identifiers at two clients;
    and what to write. Any key of the configuration can be changed: --seed 5

    Args:
        *keys: keys of the configuration and their values: --seed 5
        config: the configuration: its name, or a file; again for changes
        fix: write the fixes into this configuration, and the questions as comments at its end
        format: of the page
    """
    if fix is not None:
        config = config or (str(fix),)
        alone = len(config) == 1 and Path(config[0]) == fix
        expect(
            alone,
            "--fix",
            f"the one configuration, {shorten(config)}",
            str(fix),
            "name it once, by --fix alone",
        )
    flags = chain.from_iterable(("--config", name) for name in config)
    request = read("describe", [*flags, *keys])
    from fedlit.data.examine.page import examine

    tables, source, known_columns, left_out = _tables(request)
    page = examine(tables, source, known_columns, left_out)
    if format == "json":
        print(json.dumps(page.to_dict(), indent=2, default=str))
    else:
        print(for_terminal(page, otherwise=80))
    if fix is not None:
        from fedlit.cli.fixes import write_fixes

        changed = write_fixes(fix, page.findings)
        message = f"Nothing new to write: {shown(fix)}"
        if changed:
            message = f"Wrote {shown(fix)}"
        if page.findings.asking:
            questions = counted(len(page.findings.asking), "question")
            message += f"; {questions} at its end, as comments, for you to answer"
        say(message)


def _tables(request: Asked) -> tuple[list[ClientTable], Source, dict[str, str] | None, list[str]]:
    """Return the tables that a run would read, their source, the columns that are known, and the
    clients that are left out. In simple cases only the source is built, so that torch need not be
    imported; all other cases are left to the full parser.
    """
    source = None
    data = request.content.get("data") or {}
    seed = request.content.get("seed", 0)
    plain = (
        isinstance(data.get("source"), dict)
        and type(seed) is int
        and not any(data.get(key) for key in _SHAPED)
        and isinstance(data.get("columns") or [], list)
    )
    if plain and not request.foreign:
        source = _source(data["source"], request)
    if source is None:
        from fedlit.run.load import parse

        module = parse(request)[0].data
        return module.tables(), module.source, module.known, module.leave_out or []
    from fedlit.data.table import choose_columns

    tables = source.tables(seed)
    if columns := data.get("columns"):
        tables = choose_columns(tables, columns)
    return tables, source, data.get("known"), []


def _source(content: dict[str, Any], request: Asked) -> Source | None:
    """Return the source that a configuration names, or None if the full parser has to report what
    is wrong.
    """
    from jsonargparse import ArgumentParser

    from fedlit.data.sources.base import Source
    from fedlit.run.modules import find_modules

    find_modules(request)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--source", type=Source)
    try:
        source: Source = parser.instantiate(parser.parse_object({"source": content})).source
    except FedlitError:
        raise
    except Exception:  # the full parser reports it in our own words
        return None
    return source


def recommend(
    *,
    config: str,
    budget: float = 600.0,
    folds: int = 4,
    seed: int | None = None,
    by: str | None = None,
    workers: int | None = None,
    matters: float = 0.5,
    out: str | None = None,
) -> None:
    """Find out for the tables of a configuration whether joining is worth it, for which client, and
    with which method.

    Trains local and federated candidates on folds of training and validation rows, within a time
    budget, and reports what each client gains and what would leave it. Writes the chosen
    configuration. Test rows are not touched. If you start it again with the same settings, it
    continues where it stopped.

    Args:
        config: a configuration with data.source; its method is a candidate too
        budget: seconds until training ends, roughly, such as 180
        folds: the number of folds, 2 or more
        seed: the seed of everything, a whole number (default: the configuration's)
        by: the score that decides (default: the main one of the task)
        workers: trainings at once, each with its share of the cores (default: one per core)
        matters: percentage points below which a difference does not matter
        out: the folder for what is written (default: recommended/NAME)
    """
    path = find_config(config)
    if not is_mixture(path):
        read("describe", ["--config", str(path)])  # what is wrong is said before torch is imported
    say(f"Reading {shown(path)}")
    from fedlit.mixture import recommend as work

    printer = Printer()
    recommendation = work.recommend(
        path,
        budget=budget,
        folds=folds,
        seed=seed,
        by=by,
        workers=workers,
        matters=matters,
        out=out,
        tell=printer,
    )
    print()
    printer.show(recommendation)

"""Entry point of the ``fedlit`` command. Imports torch only where a command needs it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import takewhile

from fedlit.cli.interrupted import STATUS, came, heeded, leave
from fedlit.errors import ConfigError, FedlitError, RunError, did_you_mean
from fedlit.exchange.place import find_place, refuse_ranks, says_the_end
from fedlit.files import UNWRITABLE, advice, reason
from fedlit.run.allowed import take, trusting
from fedlit.show.shown import Notices, say

__all__ = ["main"]

HEAVY = ("fit", "validate", "test", "predict", "describe")
STUDIES = ("compare", "search")
READING = (*HEAVY, "add-client", "explain", "export", "site")
"""Commands that read a file that somebody else may have written."""
LIGHT = {
    "add-client": ("fedlit.cli.joining", "main"),
    "check": ("fedlit.cli.check", "main"),
    "coordinate": ("fedlit.cli.coordinate", "main"),
    "data": ("fedlit.cli.data", "main"),
    "explain": ("fedlit.cli.explain", "main"),
    "export": ("fedlit.cli.score", "export"),
    "init": ("fedlit.cli.init", "main"),
    "methods": ("fedlit.cli.methods", "main"),
    "partition": ("fedlit.cli.partition", "main"),
    "recommend": ("fedlit.cli.recommend", "main"),
    "site": ("fedlit.cli.site", "main"),
}
"""Commands of a module of their own → it, and its function."""
COMMANDS = {
    "init FOLDER": "write a configuration for the tables of a folder",
    "check --config NAME": "look at the tables: what is odd, and what to write about it",
    "recommend --config NAME": "is joining worth it, for whom, with what: within a budget",
    "fit --config NAME": "train a federation (quickstart.yaml needs no data)",
    "describe --config NAME": "show the plan: rows, parameters, what travels (--format json)",
    "validate --config NAME": "score the validation split of the newest run",
    "test --config NAME": "score its test split, write test.csv and test.json (--all shows every score)",
    "predict --config NAME": "write predictions, one file per client (--format csv|parquet)",
    "predict --run RUN --client NAME --data FILE": "score new rows with one client of a trained run",
    "export --run RUN --client NAME": "write one client as a folder of data, to score rows elsewhere",
    "add-client --run RUN --config NAME": "let a new client join a trained run, and say what it gains",
    "explain --run RUN": "what a run's clients had to correct in their columns (fedlit.IFedAvg)",
    "compare STUDY": "many methods and seeds: what federation gains, for whom",
    "search STUDY": "look for what to federate, and how",
    "methods [show NAME]": "the methods that are there: what travels, what may differ, what it costs",
    "partition describe --config NAME": "how clients' rows and classes differ: a table and a picture",
    "data [list | fetch NAME | show NAME]": "which tables there are, and where they were found",
    "coordinate [init | add | start | watch | renew] FOLDER": "across institutions: the coordinator's side",
    "site keys FOLDER": "across institutions: a site's side",
}
ABOUT = "Partial federated learning on tables whose columns, classes and distributions differ."
MORE = (
    "NAME is a YAML file: in this folder, in configs/, or one that came with fedlit. --config may be left out.",
    "Any key can be changed: fedlit fit --config NAME --trainer.max_epochs 3",
    "Classes of your own that a run's folder names: --trust MODULE (see Reliability).",
    "fedlit fit --help tells the keys that matter, --help all every key; --ckpt_path last continues the newest run.",
)


def _usage() -> str:
    import shutil

    from fedlit.show.text import definitions, wrap

    width = shutil.get_terminal_size().columns
    commands = definitions(((f"fedlit {command}", what) for command, what in COMMANDS.items()), width)
    about, *more = (wrap(line, width) for line in (ABOUT, *MORE))
    return "\n".join(["usage: fedlit COMMAND ...", "", about, "", commands, "", *more])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; the process's own if None.

    Returns:
        Exit status: 0, 1 for a run that failed, 2 for a configuration that cannot be run, 3 for a run that came to
        its end without a client.
    """
    status = _main(list(sys.argv[1:] if argv is None else argv), to_the_end=argv is None)
    if argv is None:
        leave(status)
    return status


def _main(args: list[str], *, to_the_end: bool) -> int:
    _wrap_warnings()
    # those that speak with others take their leave, by handlers of their own
    with nullcontext() if args[:1] in (["coordinate"], ["site"]) else heeded(to_the_end=to_the_end):
        try:
            return _trusting(args)
        except FedlitError as error:
            if os.environ.get("FEDLIT_DEBUG"):
                traceback.print_exc()
            return _ended(f"fedlit: error: {error}", error.exit_status)
        except KeyboardInterrupt as error:
            return _interrupted(error)
        except SystemExit as error:  # how Lightning ends
            if not came():
                raise
            return _interrupted(error)
        except BrokenPipeError:
            return 1


def _interrupted(error: BaseException) -> int:
    told = str(error) if isinstance(error, KeyboardInterrupt) else ""
    told = told or "continue with --ckpt_path last, if a checkpoint was written"
    return _ended(f"fedlit: interrupted; {told}", STATUS)


def _join() -> None:
    """Where this is one of several processes: before anything goes wrong at one of them."""
    if find_place() is not None:
        from fedlit.exchange.ranks import join

        if (ranks := join()) is not None and ranks.rank:
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the first prints


def _trusting(args: list[str]) -> int:
    """Run a command, whose ``--trust`` holds for all that it reads."""
    _join()
    rest, trusted = take(args) if args[:1] and args[0] in READING else (args, ())
    with trusting(*trusted):
        return _dispatch(rest)


def _ended(text: str, status: int) -> int:
    if says_the_end():
        say(text)
    return status


def _dispatch(args: list[str]) -> int:
    command, *rest = args or ["--help"]
    if command in (*HEAVY, "check", "recommend"):
        rest = _with_flags(rest)
    if command in ("-h", "--help", "help"):
        print(_usage())
    elif command == "--version":
        from importlib.metadata import version

        print(f"fedlit {version('fedlit')}")
    elif command in STUDIES:
        refuse_ranks(f"fedlit {command}")
        from fedlit.cli.study import main as study

        return _guarded(lambda: study(command, rest))
    elif command in LIGHT or (command == "predict" and _about_new_rows(rest)):
        refuse_ranks(f"fedlit {command}" + (" of new rows" if command == "predict" else ""))
        module, function = LIGHT.get(command, ("fedlit.cli.score", "predict"))
        return _guarded(lambda: int(getattr(importlib.import_module(module), function)(rest)))
    elif command in HEAVY:
        return _guarded(lambda: _execute(command, rest))
    else:
        raise ConfigError(f"expected a command, found {command!r}; fedlit --help lists them." + _meant(command))
    return 0


def _with_flags(args: list[str]) -> list[str]:
    """``--config`` before each of the words that a command begins with: ``fedlit fit mine.yaml``."""
    names = list(takewhile(lambda word: not word.startswith("-") and "=" not in word, args))
    return [*(word for name in names for word in ("--config", name)), *args[len(names) :]]


def _about_new_rows(args: list[str]) -> bool:
    from fedlit.cli.score import ASKED_FOR

    return any(arg.partition("=")[0] in ASKED_FOR for arg in args)


def _meant(command: str) -> str:
    """What a word that is no command may have been."""
    known = [*HEAVY, *STUDIES, *LIGHT, "--version", "--help"]
    dashed = " Did you mean fedlit fit --config …?" if command.startswith("-") else ""
    return did_you_mean(command, known) or dashed


def _wrap_warnings() -> None:
    """Warnings, as Python shows them where nobody says how, but at the terminal's width."""
    log = logging.getLogger("fedlit")
    if sys.stderr.isatty() and not any(isinstance(own, Notices) for own in log.handlers):
        log.addHandler(Notices(logging.WARNING))


def _execute(command: str, rest: list[str]) -> int:
    from fedlit.composite.settings import is_composite
    from fedlit.run.arguments import read

    brief = "--all" not in rest
    rest = [arg for arg in rest if arg != "--all" or command not in ("validate", "test")]
    if is_composite(rest):
        from fedlit.cli.composite import execute as mixed

        refuse_ranks("a mixture of several parts")
        mixed(command, rest, brief)
        return 0
    asked = read(command, rest)  # type: ignore[arg-type]  # what is not there is said before torch is imported
    if sys.stderr.isatty() and command in ("fit", "describe") and not asked.helping:
        say(f"Reading {', '.join(map(str, asked.configs))}")
    try:
        from fedlit.cli.runs import execute
    except ImportError as error:
        raise ConfigError(
            f"expected fedlit's dependencies, found that one cannot be imported: {error}; install fedlit again"
        ) from error
    execute(asked, brief)
    return 0


def _guarded(work: Callable[[], int]) -> int:
    """Do it; whatever goes wrong is one message."""
    try:
        return work()
    except (FedlitError, KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:
        if came():  # a library that tells it otherwise
            raise KeyboardInterrupt from error
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            place = error.filename or "a file, or what is printed"
            raise RunError(
                f"{place}: expected to write there, found: {reason(error)}; {advice(error)}, or choose another folder"
            ) from error
        from lightning.fabric.utilities.exceptions import MisconfigurationException

        if isinstance(error, MisconfigurationException):
            raise ConfigError(str(error)) from error
        if os.environ.get("FEDLIT_DEBUG"):
            raise
        text = f"fedlit: error: {type(error).__name__}: {error}\n(set FEDLIT_DEBUG=1 for the traceback)"
        return _ended(text, 1)


if __name__ == "__main__":
    sys.exit(main())

"""Entry point of the ``fedlit`` command. Imports torch only where a command needs it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import takewhile

from fedlit.cli.commands import COMMANDS, find_command
from fedlit.cli.interrupted import STATUS, came, heeded, leave
from fedlit.cli.parser import call
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.place import find_place, refuse_ranks, says_the_end
from fedlit.files import UNWRITABLE, advice, reason
from fedlit.run.allowed import take, trusting
from fedlit.show.shown import Notices, say

__all__ = ["main"]

ABOUT = "Partial federated learning on tables whose columns, classes and distributions differ."
MORE = (
    "NAME is a YAML file: in this folder, in configs/, or one that came with fedlit. --config may be left out.",
    "Any key can be changed: fedlit fit --config NAME --trainer.max_epochs 3",
    "Classes of your own that a run's folder names: --trust MODULE (see Reliability).",
    "fedlit fit --help tells the keys that matter, --help all every key; --ckpt_path last continues the newest run.",
)


def _usage() -> str:
    import shutil

    from fedlit.show.text import wrap

    width = shutil.get_terminal_size().columns
    about, *more = (wrap(line, width) for line in (ABOUT, *MORE))
    return "\n".join(["usage: fedlit COMMAND ...", "", about, "", _listed(COMMANDS), "", *more])


def _listed(names: Iterable[str]) -> str:
    from fedlit.show.text import definitions

    told = {name: COMMANDS[name] for name in names if COMMANDS[name].help}
    return definitions((f"fedlit {name} {own.usage}".rstrip(), own.help) for name, own in told.items())


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
            _join()
            return _dispatch(args or ["--help"])
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
        except Exception as error:
            return _interrupted(error) if came() else _failed(error)  # a library that tells it otherwise


def _dispatch(args: list[str]) -> int:
    if args[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"fedlit {version('fedlit')}")
        return 0
    name, words = find_command(args)
    group = [own for own in COMMANDS if own.startswith(f"{name} ") and "--" not in own]
    if group and (name not in COMMANDS or words[:1] in (["-h"], ["--help"])):
        print(f"usage: fedlit {name} COMMAND ...\n\n{_listed(group)}")
        return 0
    command = COMMANDS[name]
    if command.usage.startswith("--config"):
        words = _with_flags(words)
    if not command.ranks:
        refuse_ranks(f"fedlit {name}" + (" of new rows" if name == "predict --run" else ""))
    words, trusted = take(words) if command.foreign else (words, ())
    module, function = command.home.split(":")
    with trusting(*trusted):
        work = getattr(importlib.import_module(f"fedlit.cli.{module}"), function)
        return int(call(name, work, words, foreign=command.foreign) or 0)


def _with_flags(args: list[str]) -> list[str]:
    """``--config`` before each of the words that a command begins with: ``fedlit fit mine.yaml``."""
    names = list(takewhile(lambda word: not word.startswith("-") and "=" not in word, args))
    return [*(word for name in names for word in ("--config", name)), *args[len(names) :]]


def _join() -> None:
    """Join the other processes of a job, before anything can go wrong at one of them."""
    if find_place() is not None:
        from fedlit.exchange.ranks import join

        if (ranks := join()) is not None and ranks.rank:
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # the first prints


def _interrupted(error: BaseException) -> int:
    told = str(error) if isinstance(error, KeyboardInterrupt) else ""
    told = told or "continue with --ckpt_path last, if a checkpoint was written"
    return _ended(f"fedlit: interrupted; {told}", STATUS)


def _failed(error: Exception) -> int:
    """Turn any other error into one message."""
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        place = error.filename or "a file, or what is printed"
        told = f"{place}: expected to write there, found: {reason(error)}; {advice(error)}, or choose another folder"
        return _ended(f"fedlit: error: {told}", RunError.exit_status)
    if os.environ.get("FEDLIT_DEBUG"):
        raise error
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    if isinstance(error, MisconfigurationException):
        return _ended(f"fedlit: error: {error}", ConfigError.exit_status)
    text = f"fedlit: error: {type(error).__name__}: {error}\n(set FEDLIT_DEBUG=1 for the traceback)"
    return _ended(text, 1)


def _ended(text: str, status: int) -> int:
    if says_the_end():
        say(text)
    return status


def _wrap_warnings() -> None:
    """Warnings, as Python shows them where nobody says how, but at the terminal's width."""
    log = logging.getLogger("fedlit")
    if sys.stderr.isatty() and not any(isinstance(own, Notices) for own in log.handlers):
        log.addHandler(Notices(logging.WARNING))


if __name__ == "__main__":
    sys.exit(main())

"""Entry point of the ``fedlit`` command. Imports torch only where a command needs it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import chain, takewhile

from fedlit.cli.commands import COMMANDS, call, find_command, take_trusted, usage
from fedlit.cli.interrupted import STATUS, came, heed, ignore_termination, leave
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.place import find_place, refuse_ranks, says_the_end
from fedlit.files import UNWRITABLE, advice, reason
from fedlit.run.allowed import import_trusted, trusting
from fedlit.session import Session, session
from fedlit.show.shown import Notices, for_terminal, say
from fedlit.show.text import Verbatim


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        Exit status: 0, 1 for a run that failed, 2 for a configuration that cannot be run, 3 for a
        run that came to its end without a client, 130 after Ctrl-C.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    # Coordinators and sites leave the others by handlers of their own.
    if argv is None and args[:1] not in (["coordinate"], ["site"]):
        heed()
    with Session():
        status = _run(args or ["--help"])
    if argv is None:
        leave(status)
    return status


def _run(args: list[str]) -> int:
    """Run a command as a job of its own, and print why it ends if it fails."""
    if sys.stderr.isatty():
        # Warnings are printed at the terminal's width.
        logging.getLogger("fedlit").addHandler(Notices(logging.WARNING))
    try:
        _join()
        return _dispatch(args)
    except BaseException as error:
        ignore_termination()
        if isinstance(error, SystemExit) and not came():  # help was printed
            raise
        if os.environ.get("FEDLIT_DEBUG"):
            traceback.print_exc()
        status, text = _ended(error)
        if text and says_the_end():
            say(f"fedlit: {text}")
        return status


def _dispatch(args: list[str]) -> int:
    if args[0] in ("-h", "--help", "help"):
        print(for_terminal(Verbatim(usage())))
        return 0
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"fedlit {version('fedlit')}")
        return 0
    name, arguments = find_command(args)
    if name not in COMMANDS:
        print(usage(name))
        return 0
    command = COMMANDS[name]
    arguments, trusted = take_trusted(arguments)
    module, _, function = command.home.partition(":")
    if command.usage.startswith("--config"):  # fedlit fit mine.yaml
        names = list(takewhile(_is_name, arguments))
        flags = chain.from_iterable(("--config", name) for name in names)
        arguments = [*flags, *arguments[len(names) :]]
    if module != "runs":
        refuse_ranks(f"fedlit {name}" + (" of new rows" if name == "predict --run" else ""))
    with trusting(*trusted):
        import_trusted(trusted)
        work = getattr(importlib.import_module(f"fedlit.cli.{module}"), function)
        return int(call(name, work, arguments) or 0)


def _is_name(argument: str) -> bool:
    return not argument.startswith("-") and "=" not in argument


def _join() -> None:
    """Join the other processes of a job, before anything can go wrong at one of them."""
    if find_place() is not None:
        from fedlit.exchange.ranks import join

        if (ranks := join()) is not None and ranks.rank:
            # The first rank prints. At its end, the session puts the standard output back.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            session().on_end(sys.stdout.close)


def _ended(error: BaseException) -> tuple[int, str]:
    """Return the exit status after an error, and the message to print."""
    if isinstance(error, FedlitError):
        return error.exit_status, f"error: {error}"
    if came() or isinstance(error, KeyboardInterrupt):  # a library may tell it otherwise
        message = str(error) if isinstance(error, KeyboardInterrupt) else ""
        advice_to_go_on = (
            "a study or recommendation goes on with the same command, a run with --ckpt_path last"
        )
        return STATUS, f"interrupted; {message or advice_to_go_on}"
    if isinstance(error, BrokenPipeError):
        return RunError.exit_status, ""
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        location = error.filename or "a file, or what is printed"
        problem = (
            f"{location}: expected to write there, found: {reason(error)}; {advice(error)}, or "
            "choose another folder"
        )
        return RunError.exit_status, f"error: {problem}"
    if isinstance(error, PermissionError):
        do = "change its permissions, or name another place"
        return (
            ConfigError.exit_status,
            f"error: {error.filename}: expected access to it, found: {reason(error)}; {do}",
        )
    if type(error).__name__ == "MisconfigurationException":  # Lightning's, of a setting
        return ConfigError.exit_status, f"error: {error}"
    return (
        RunError.exit_status,
        f"error: {type(error).__name__}: {error}\n(set FEDLIT_DEBUG=1 for the traceback)",
    )


if __name__ == "__main__":
    sys.exit(main())

"""argparse for the light commands, in fedlit's words and at the terminal's width."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["Commands", "Parser", "dispatch"]

_TOLD = {
    r"^argument ([^:]+): invalid int value: (.*)$": r"\1: expected a whole number, found \2",
    r"^argument ([^:]+): invalid float value: (.*)$": r"\1: expected a number, found \2",
    r"^argument ([^:]+): expected one argument$": r"\1: expected a value behind it, found nothing",
    r"^the following arguments are required: (.*)$": r"expected \1, found nothing of the kind",
    r"^unrecognized arguments: (.*)$": r"expected nothing more, found \1",
}
"""What argparse says → in fedlit's words."""


class _Formatter(argparse.HelpFormatter):
    """Words are never pushed beyond the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24 if shutil.get_terminal_size().columns >= 60 else 6)

    def _format_usage(self, *args: Any) -> str:
        text = " ".join(super()._format_usage(*args).split())
        return textwrap.fill(text, self._width, subsequent_indent="  ", break_on_hyphens=False) + "\n\n"


Commands = Mapping[str, tuple[Callable[[Sequence[str]], int], str]]


class Parser(argparse.ArgumentParser):
    """Of light commands: a wrong argument is a :class:`ConfigError` instead of a page of usage, and explanations stand
    below what they explain where the terminal is narrow.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def add_run(self, client: str | None = None) -> None:
        """``--run``, and ``--client`` and ``--ckpt_path`` of commands for one client.

        Args:
            client: what the client is for.
        """
        self.add_argument("--run", required=True, help="a run's folder, or the name of a configuration: its newest run")
        self.add_argument(
            "--trust",
            nargs="+",
            metavar="MODULE",
            help="installed modules whose classes the run may name, beside those of fedlit, torch.nn and torch.optim",
        )
        if client is not None:
            self.add_argument("--client", required=True, help=client)
            self.add_argument("--ckpt_path", default="last", help="last (default), best, or a checkpoint's file")

    def parse_args(self, args: Sequence[str], namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """See the class; a misspelt flag is said before one that is missing, for it may be that one."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for flag in (arg.partition("=")[0] for arg in args):
            if flag.startswith("--") and flag not in known:
                hint = did_you_mean(flag[2:], [name[2:] for name in known], "--")
                raise ConfigError(f"{self.prog}: expected some of {', '.join(known)}, found {flag}.{hint}")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """See the class."""
        choice = re.fullmatch(r"argument ([^:]+): invalid choice: '([^']*)'.*", message)
        if choice:
            known = next(own.choices for own in self._actions if choice[1] in own.option_strings) or ()
            hint = did_you_mean(choice[2], known)
            message = f"{choice[1]}: expected one of {', '.join(known)}, found {choice[2]!r}.{hint}"
        for pattern, told in _TOLD.items():
            message = re.sub(pattern, told, message)
        raise ConfigError(f"{message} ({self.prog} --help)")


def dispatch(program: str, takes: str, commands: Commands, argv: Sequence[str]) -> int:
    """Run a command of several, and return its exit status.

    Args:
        program: before the command, such as ``fedlit site``.
        takes: behind it, for the usage.
        commands: command → what does it, and what it is for.
        argv: the command, and what is behind it.

    Raises:
        ConfigError: there is no such command.
    """
    command, *rest = argv or ["--help"]
    if command in ("-h", "--help"):
        print(f"usage: {program} {takes}\n")
        print("\n".join(f"  {name:<8} {about}" for name, (_, about) in commands.items()))
        return 0
    if command not in commands:
        hint = did_you_mean(command, commands)
        raise ConfigError(f"{program}: expected one of {', '.join(commands)}, found {command!r}.{hint}")
    return commands[command][0](rest)

"""Base class of objects that are displayed as text, at the terminal's width, or as HTML in a
notebook.
"""

from __future__ import annotations

import html
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from fedlit.session import Session, session
from fedlit.show.text import printable, tables, terminal_width, text_table, wrap

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        header: one word for each column.
        rows: rows with one cell for each column.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self, width: int | None = None) -> str:
        """Return the table as text, see :func:`fedlit.show.text.text_table`."""
        return text_table(self.header, self.rows, width)

    def html(self) -> str:
        """Return the table as HTML, as a notebook shows any frame of pandas. All cells are escaped.

        Example:
            >>> Grid(["client", "rows"], [["<b>", "12"]]).html().count("&lt;b&gt;")
            1
        """
        import pandas as pd

        header = list(map(printable, self.header))
        rows = [list(map(printable, row)) for row in self.rows]
        with pd.option_context("display.max_colwidth", None):
            return str(pd.DataFrame(rows, columns=header).to_html(index=False, border=0))


@dataclass(frozen=True)
class Folded:
    """Tables and lines below a title. A notebook hides them until the title is clicked.

    Attributes:
        title: the title.
        inner: the parts below the title.
    """

    title: str
    inner: Sequence[str | Grid]

    def text(self, width: int | None = None) -> str:
        """Return the title and the parts below it as text."""
        return "\n".join(_text(part, width) for part in (self.title, *self.inner))

    def html(self) -> str:
        """Return it as HTML. All words are escaped.

        Example:
            >>> Folded("By sex:", ["a < b"]).html()
            '<details><summary>By sex:</summary><div>a &lt; b</div></details>'
        """
        inner = "".join(map(_html, self.inner))
        return f"<details><summary>{html.escape(printable(self.title))}</summary>{inner}</details>"


Part = str | Grid | Folded
"""What is shown: a line, a table, or several of them."""


def _text(part: Part, width: int | None) -> str:
    if isinstance(part, str):
        return wrap(part, width)
    return part.text(width)


def _html(part: Part) -> str:
    if not isinstance(part, str):
        return part.html()
    if not part:
        return "<br>"
    return f"<div>{html.escape(printable(part))}</div>"


def card_html(title: str, text: str, colour: str) -> str:
    """Return a card as HTML for a notebook, which shows it in its own theme. All words are escaped.

    Args:
        title: its first line, in bold.
        text: the sentences below.
        colour: the colour of its left edge.

    Example:
        >>> card_html("north", "a < b", "#0b7a4b").count("a &lt; b")
        1
    """
    style = f"border-left: 6px solid {colour}; padding: .3em .8em; margin: .4em 0; max-width: 50em"
    title = html.escape(printable(title))
    text = html.escape(printable(text))
    return f'<div style="{style}"><b>{title}</b><br>{text}</div>'


class Shown(ABC):
    """Something that consists of tables and sentences.

    ``str()`` returns the text at full width, whatever the terminal's width. ``repr()``, which
    Python prints at a prompt, and :func:`for_terminal` use the terminal's width.
    """

    @abstractmethod
    def parts(self) -> Iterable[Part]:
        """Return tables and lines, from top to bottom; an empty line makes a gap."""

    def text(self, width: int | None = None) -> str:
        """Return it as text.

        Args:
            width: the largest width of a line, in columns; unlimited if None.
        """
        return "\n".join(_text(part, width) for part in self.parts())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text(terminal_width())

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.parts()))


def for_terminal(
    content: str | Shown, stream: TextIO | None = None, otherwise: int | None = None
) -> str:
    r"""Return the text to print to a stream (standard output), without control characters for
    terminals, because parts of a text may come from elsewhere. On a terminal, errors are red, notes
    yellow and headings bold, unless ``NO_COLOR`` is set.

    Args:
        content: a text, or an object that can show itself.
        stream: the stream; lines are as wide as its terminal.
        otherwise: the width of lines in a pipe or file, in columns; unlimited if None.

    Example:
        >>> for_terminal("the coordinator says: \x1b[31mred")
        'the coordinator says: ?[31mred'
    """
    width = terminal_width(stream)
    if width is None:
        return printable(_text_of(content, otherwise))
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, width=width, highlight=False)
    if os.environ.get("NO_COLOR"):  # Rich would still print in bold
        console = Console(file=stream, width=width, highlight=False, color_system=None)
    parts = [content] if isinstance(content, str) else content.parts()
    with console.capture() as capture:
        for part in parts:
            for renderable in _renderables(part, width):
                console.print(renderable, soft_wrap=isinstance(renderable, Text))
    return capture.get().removesuffix("\n")


def _text_of(content: Shown | str, width: int | None) -> str:
    if isinstance(content, str):
        return wrap(content, width)
    return content.text(width)


_STYLES = {
    r"(?m)^fedlit: error:": "red",
    r"(?m)^fedlit: interrupted": "yellow",
    r"(?m)^(Note|Warning|FAILED)\b": "yellow",
    r"(?m)^[a-z]+: +rows\b.*": "bold",
    r"(?m)^[A-Z][-\w' ()]+:$": "bold",
}
"""Pattern of a line's beginning → Rich's style: errors red, warnings yellow, headings bold."""


def _renderables(part: Part, width: int) -> Iterator[Text | Table]:
    """Yield what Rich prints for a part."""
    from rich.text import Text

    if isinstance(part, str):
        text = Text(printable(wrap(part, width)))
        for pattern, style in _STYLES.items():
            text.highlight_regex(pattern, style)
        yield text
    elif isinstance(part, Folded):
        for inner in (part.title, *part.inner):
            yield from _renderables(inner, width)
    else:
        rows = [list(map(printable, row)) for row in part.rows]
        for position, table in enumerate(tables([*map(printable, part.header)], rows, width)):
            if position:
                yield Text()
            table.header_style = "bold"
            yield table


class Printer:
    """Prints what a command has to say, each sentence once.

    Example:
        >>> class Answer(Shown):
        ...     def parts(self):
        ...         return ["Note: few rows", "", "north gains."]
        >>> printer = Printer()
        >>> printer("Note: few rows")
        Note: few rows
        >>> printer.show(Answer())
        north gains.
    """

    def __init__(self) -> None:
        self._said = set[str]()

    def __call__(self, line: str) -> None:
        """Print a line."""
        self._said.add(line)
        print(for_terminal(line), flush=True)

    def show(self, content: Shown) -> None:
        """Print a result without the lines that were printed before."""
        parts = [part for part in content.parts() if not self._has_said(part)]
        while parts and parts[0] == "":
            del parts[0]
        print(for_terminal(_Rest(parts)), flush=True)

    def _has_said(self, part: Part) -> bool:
        return isinstance(part, str) and part != "" and part in self._said


class _Rest(Shown):
    """Some parts of a result."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def parts(self) -> Sequence[Part]:
        return self._parts


def say(text: str) -> None:
    """Print a message that is not a result (an error, a notice) to standard error, at the
    terminal's width. If there are several processes, one of them prints it.
    """
    _say(session(), text)


def _say(job: Session, text: str) -> None:
    if job.is_first(text):
        (job.prints or print_notice)(text)


def print_notice(text: str) -> None:
    """Print a message in this process; see :func:`say`."""
    print(for_terminal(text, sys.stderr), file=sys.stderr, flush=True)


class Notices(logging.Handler):
    """A logging handler that prints messages by :func:`say`, for the job in which it was made.

    Args:
        level: the lowest level of messages that are printed.
    """

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._job = session()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record."""
        _say(self._job, record.getMessage())

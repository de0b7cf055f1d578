"""A report as a list of sections, and its three forms: text for a terminal, Markdown, and a
self-contained HTML page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fedlit.answers.answer import Answer
from fedlit.show.canvas import THEME
from fedlit.show.shown import Grid
from fedlit.show.text import in_markdown, printable


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: the title above the section.
        lines: sentences, each of which is a paragraph.
        items: the items of a list.
        table: a table of texts; its index has the labels of rows.
        brief: the part of the table that a terminal shows; None for nothing.
        answers: the answers, each of which is shown as a card.
        draw: returns captions with SVG pictures; only an HTML page shows these.
        below: whether it belongs to the previous section.
        folded: whether a page shows its table only when it is asked for.
    """

    title: str
    lines: Sequence[str] = ()
    items: Sequence[str] = ()
    table: pd.DataFrame | None = None
    brief: pd.DataFrame | None = None
    answers: Sequence[Answer] = ()
    draw: Callable[[], Mapping[str, str]] | None = None
    below: bool = False
    folded: bool = False


def grid(table: pd.DataFrame) -> Grid:
    """Return a table of texts with its row labels."""
    return Grid(
        ["", *table.columns], [[str(label), *cells] for label, *cells in table.itertuples()]
    )


def terminal(sections: Sequence[Section]) -> Iterator[str | Grid]:
    """Yield the answers, then the brief tables."""
    for section in sections:
        for answer in section.answers:
            yield from (f"{answer.client}: {answer.headline}.", f"  {answer.text}.")
    for section in sections:
        if section.brief is not None:
            yield from ("", f"{section.title}:", "")
            yield grid(section.brief)
            yield from section.lines


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the report as Markdown, without pictures."""
    parts = [f"# {_plain(title)}"]
    for section in sections:
        mark = "###" if section.below else "##"
        parts += [f"{mark} {_plain(section.title)}", *map(_plain, section.lines)]
        if section.table is not None:
            parts.append(_rows(section.table))
        cards = [
            f"- **{answer.client}**: {answer.headline}. {answer.text}."
            for answer in section.answers
        ]
        parts.append("\n".join(map(_plain, cards)))
        parts.append("\n".join(_plain(f"- {item}") for item in section.items))
    return "\n\n".join(part for part in parts if part) + "\n"


def html(title: str, sections: Sequence[Section]) -> str:
    """Return the report as an HTML page, with pictures."""
    environment = Environment(
        loader=PackageLoader("fedlit.study", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"cell": _cell, "breakable": _breakable, "marked": _marked}
    return (
        environment.get_template("report.html.j2").render(
            title=title, sections=sections, theme=THEME
        )
        + "\n"
    )


def _rows(table: pd.DataFrame) -> str:
    lines = [["", *table.columns], ["---"] * (len(table.columns) + 1), *table.itertuples()]
    first, rule, *rest = lines
    cells = [list(map(in_markdown, first)), rule, *(list(map(in_markdown, line)) for line in rest)]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _plain(text: str) -> str:
    """Return a sentence without HTML; its own bold text and code stay Markdown."""
    return printable(text).replace("<", "\\<").replace("\n", " ")


def _cell(text: str) -> Markup:
    """Format a value with its spread below it in small letters. Lines break only before brackets
    and after commas.
    """
    match = re.fullmatch(r"((?:[▲▼] )?\S+) ([±(].*|n = .*)", text)
    if match is None:
        return escape(text)
    value, small = match.groups()
    return escape(value) + Markup("<small>{}</small>").format(
        re.sub(r"(?<!,) (?!\(|n =|paper)", "\xa0", small)
    )


def _breakable(name: str) -> Markup:
    """Allow line breaks after a name's underscores, and nowhere else."""
    return Markup(str(escape(name)).replace("_", "_<wbr>"))


def _marked(text: str) -> Markup:
    """Convert bold text and code in a line of Markdown to HTML."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", str(escape(text)))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))

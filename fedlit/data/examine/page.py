"""The page of ``fedlit check``: what clients' tables hold, what is odd in them, and how to fix
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fedlit.data.examine.checks import MOST_PAIRS
from fedlit.data.examine.facts import ClientFacts, ColumnFacts, by_name, facts_of
from fedlit.data.examine.ledger import all_findings
from fedlit.data.findings import Findings
from fedlit.data.table import SPLITS, ClientTable
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, counted, more, shorten

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

_MANY = 12  # clients up to which each has a paragraph of its own
_HEADER = ("client", "rows", *SPLITS, "columns", "missing %", "target")
_HOW = (
    "Columns that predict the target were looked for in a sample of training rows: at each "
    "client, and over all clients that predict the same target. Rows of two clients can only be "
    f"compared where one process sees both, and for at most {MOST_PAIRS} pairs of clients."
)


@dataclass(frozen=True)
class Page(Shown):
    """What clients' tables hold, with findings about them.

    Attributes:
        clients: the summary of each client.
        findings: the findings about all tables, the worst first.
    """

    clients: tuple[ClientFacts, ...]
    findings: Findings

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        many = len(self.clients) > _MANY
        yield Grid(_HEADER, [*map(_row, self.clients[:MOST_ROWS])])
        yield from more(self.clients, "clients (--format json has all)")
        for own in () if many else self.clients:
            yield ""
            yield from _paragraph(own)
        if len(self.clients) > 1:
            yield ""
            yield _common_columns(self.clients)
        yield ""
        # the paragraphs above have what is left out
        shown = [own for own in self.findings if many or own.kind != "left out"]
        if shown:
            yield from replace(self.findings, items=tuple(shown)).parts()
        else:
            yield "Nothing else to review." if self.findings else "No problems were found."
        yield ""
        yield _HOW
        remedies = [*self.findings.remedies()]
        if remedies:
            yield from (
                "",
                "To write into the configuration, or let fedlit check --fix FILE write:",
                *remedies,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"clients": [asdict(own) for own in self.clients], **self.findings.to_dict()}


def examine(
    tables: Sequence[ClientTable],
    source: Source | None = None,
    known: Mapping[str, str] | None = None,
    left_out: Sequence[str] = (),
) -> Page:
    """Examine clients' tables, alone and together.

    Columns that predict the target are looked for in a sample of training rows; quantiles are of a
    sample; the same rows at two clients can be found only where one process sees both.

    Args:
        tables: the tables, as a source returns them.
        source: the source of the tables, so that the proposed keys fit it; :class:`fedlit.Tables`
            if None.
        known: maps a column to the reason why nothing has to be done about it.
        left_out: the clients that the configuration leaves out.

    Raises:
        ConfigError: a column is known that no client has.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> page = examine(Bundled(clients=["wine"]).tables(seed=8))
        >>> page.clients[0].rows["train"], len(page.findings)
        (106, 0)
    """
    clients = tuple(map(facts_of, tables))
    return Page(clients, all_findings(tables, clients, source, known, left_out))


# ------------------------------------------------------------------ clients in tables and sentences


def _row(own: ClientFacts) -> list[str]:
    missing = (
        100 * sum(column.missing for column in own.columns.values()) / max(len(own.columns), 1)
    )
    numbers = (sum(own.rows.values()), *own.rows.values(), len(own.columns), missing)
    return [own.client, *(f"{number:,.4g}" for number in numbers), ", ".join(own.targets)]


def _paragraph(own: ClientFacts) -> Iterable[str]:
    """Yield a client's targets, columns and missing cells."""
    yield (
        f"{own.client}: predicts "
        f"{'; '.join(_target(own, name, held) for name, held in own.targets.items())}"
    )
    kinds = Counter(column.kind for column in own.columns.values()).most_common()
    reasons = dict[str, list[str]]()
    for name, why in own.left_out.items():
        reasons.setdefault(why, []).append(name)
    left = "; ".join(f"{shorten(names, 6)} ({why})" for why, names in reasons.items())
    yield f"  Columns: {', '.join(f'{number:,} {kind}' for kind, number in kinds)}" + (
        left and f". Left out: {left}"
    )
    gaps = sorted(
        ((column.missing, name) for name, column in own.columns.items() if column.missing),
        reverse=True,
    )
    if gaps:
        yield f"  Missing: {shorten([f'{name} {_share(share)}' for share, name in gaps], 5)}"


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _target(own: ClientFacts, name: str, held: ColumnFacts) -> str:
    if held.values is None:
        if not held.quantiles:
            return f"{name} ({own.task})"
        low, _, middle, _, high = held.quantiles
        return f"{name}, a number ({own.task}): from {low:.4g} to {high:.4g}, median {middle:.4g}"
    rows = sum(own.rows.values())
    known = sum(held.values.values())
    shown = [
        f"{label} ({counted(n, 'row')}, {_share(n / known)})" for label, n in held.values.items()
    ]
    shown += [f"not known ({counted(rows - known, 'row')})"] if known < rows else []
    positive = "" if own.positive is None else f"; positive is {own.positive}"
    return f"{name}: {shorten(shown, 6)}{positive}"


def _common_columns(clients: Sequence[ClientFacts]) -> str:
    """Say which columns several clients have."""
    number = {name: len(who) for name, who in by_name(clients).items()}
    everywhere = [name for name, held in number.items() if held == len(clients)]
    some = [f"{name} ({held})" for name, held in number.items() if 1 < held < len(clients)]
    text = f"Columns of all {len(clients):,} clients: {shorten(everywhere, 12) or 'none'}."
    return text + (f" Of several: {shorten(some, 12)}." if some else "")

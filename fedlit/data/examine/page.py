"""The page of ``fedlit check``: the content of clients' tables, the findings, and how to fix
them.
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

_MANY = 12
"""Largest number of clients that have a paragraph each."""
_HEADER = ("client", "rows", *SPLITS, "columns", "missing %", "target")
_HOW = (
    "Columns that predict the target were looked for in a sample of training rows: at each "
    "client, and over all clients that predict the same target. Rows of two clients can only be "
    f"compared where one process sees both, and for at most {MOST_PAIRS} pairs of clients."
)


@dataclass(frozen=True)
class Page(Shown):
    """A summary of clients' tables, with findings about them.

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
        for client in () if many else self.clients:
            yield ""
            yield from _paragraph(client)
        if len(self.clients) > 1:
            yield ""
            yield _common_columns(self.clients)
        yield ""
        # The clients' paragraphs name the columns that are left out.
        items = [finding for finding in self.findings if many or finding.kind != "left out"]
        if items:
            yield from replace(self.findings, items=tuple(items)).parts()
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
        return {"clients": [asdict(client) for client in self.clients], **self.findings.to_dict()}


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


def _row(client: ClientFacts) -> list[str]:
    gaps = sum(column.missing for column in client.columns.values())
    missing = 100 * gaps / max(len(client.columns), 1)
    numbers = (sum(client.rows.values()), *client.rows.values(), len(client.columns), missing)
    return [client.client, *(f"{number:,.4g}" for number in numbers), ", ".join(client.targets)]


def _paragraph(client: ClientFacts) -> Iterable[str]:
    """Yield a client's targets, columns and missing cells."""
    targets = [_target(client, name, column) for name, column in client.targets.items()]
    yield f"{client.client}: predicts {'; '.join(targets)}"
    kinds = Counter(column.kind for column in client.columns.values()).most_common()
    text = f"  Columns: {', '.join(f'{number:,} {kind}' for kind, number in kinds)}"
    reasons = dict[str, list[str]]()
    for name, reason in client.left_out.items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        left_out = [f"{shorten(names, 6)} ({reason})" for reason, names in reasons.items()]
        text += f". Left out: {'; '.join(left_out)}"
    yield text
    gaps = [(column.missing, name) for name, column in client.columns.items() if column.missing]
    if gaps:
        shares = [f"{name} {_share(share)}" for share, name in sorted(gaps, reverse=True)]
        yield f"  Missing: {shorten(shares, 5)}"


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _target(client: ClientFacts, name: str, column: ColumnFacts) -> str:
    if column.values is None:
        if not column.quantiles:
            return f"{name} ({client.task})"
        low, _, middle, _, high = column.quantiles
        return (
            f"{name}, a number ({client.task}): from {low:.4g} to {high:.4g}, median {middle:.4g}"
        )
    rows = sum(client.rows.values())
    labelled = sum(column.values.values())
    classes = [
        f"{label} ({counted(n, 'row')}, {_share(n / labelled)})"
        for label, n in column.values.items()
    ]
    if labelled < rows:
        classes.append(f"not known ({counted(rows - labelled, 'row')})")
    positive = "" if client.positive is None else f"; positive is {client.positive}"
    return f"{name}: {shorten(classes, 6)}{positive}"


def _common_columns(clients: Sequence[ClientFacts]) -> str:
    """Return a sentence on the columns that several clients have."""
    number = {name: len(who) for name, who in by_name(clients).items()}
    everywhere = [name for name, count in number.items() if count == len(clients)]
    some = [f"{name} ({count})" for name, count in number.items() if 1 < count < len(clients)]
    text = f"Columns of all {len(clients):,} clients: {shorten(everywhere, 12) or 'none'}."
    return f"{text} Of several: {shorten(some, 12)}." if some else text

"""How many training rows of a site stand behind what it says before training, and the classes that
are too rare.
"""

from collections.abc import Iterable, Mapping

from fedlit.data.schema.cells import plain_text
from fedlit.data.statement import Statement
from fedlit.data.targets import rows_behind_target
from fedlit.errors import DataError, Told, expect
from fedlit.institutions.plain import Facts, Message
from fedlit.run.layers import Layer
from fedlit.run.run import Run

JOINED = Layer({"data": {"facts_from": 5}}, "where a site joins: ", own=False)
"""What lies below a federation's configuration at its sites and its coordinator."""

Behind = Mapping[str, Message]
"""Kind of fact → column, or part of the target → the number of training rows behind each value, or
behind all."""


def rows_behind(run: Run, site: str, facts: Facts) -> dict[str, dict[str, object]]:
    """Count the training rows behind what a site says.

    Args:
        run: the site's, with its table read and its network built.
        site: its name.
        facts: topic → what it says.
    """
    counted: dict[str, dict[str, object]] = {}
    for topic, columns in run.data.statements.get(site, {}).items():
        counted[topic] = {column: statement.rows for column, statement in columns.items()}
    target = facts.get("columns", {}).get("target", {})
    if "labels" in target or _names_classes(run, site):
        counted["target"] = {"labels": class_rows(run, site)}
    elif "count" in target:
        counted["target"] = dict(rows_behind_target(target))
    coded = _coded_in_slices(run, site, counted.get("categories", {}))
    if coded:
        (table,) = run.data.tables()
        stated = run.data.encoders[site].statements(table)
        counted["names"] = {column: _by_name(stated[column]) for column in coded}
    return counted


def _by_name(statement: Statement) -> dict[str, int]:
    assert isinstance(statement.rows, list)
    return dict(zip(map(plain_text, statement.value), statement.rows, strict=True))


def class_rows(run: Run, site: str) -> dict[str, int]:
    """Map each class of a site's training rows to the number of rows that have it."""
    (client,) = [candidate for candidate in run.data.clients if candidate.spec.name == site]
    return client.spec.task.label_rows(client.train.y)


def _names_classes(run: Run, site: str) -> bool:
    """Return whether the names of tensors that are sent have classes in them."""
    return not _names_of_slices(run, site).isdisjoint(run.loop.federation[site].spec.output_labels)


def check_classes(run: Run, site: str, behind: Behind, allowed: tuple[str, ...]) -> None:
    """Refuse to name a class that too few training rows have.

    Args:
        run: the site's, with its table read and its network built.
        site: its name.
        behind: the number of rows behind what it says (see :func:`rows_behind`).
        allowed: the classes that a person allows (``rare_classes``).

    Raises:
        DataError: a class of few rows that nobody allowed, a mean over few rows, or an allowed
            class that is none.
    """
    rows_of_classes = class_rows(run, site)
    least = run.data.facts_from
    for name in allowed:
        expected = f"a class of this site's training rows ({', '.join(rows_of_classes) or 'none'})"
        expect(
            name in rows_of_classes,
            f"site {site}: rare_classes",
            expected,
            name,
            known=list(rows_of_classes),
        )
    target = behind.get("target", {})
    key = f"site {site}: data.facts_from"
    for name, rows in target.get("labels", {}).items():
        if rows >= least or name in allowed:
            continue
        expected = f"at least {least} training rows of each class, because its name is sent"
        advice = (
            "leave these rows out, put the class together with another, or, if its name may "
            "be known, write "
        )
        advice += f'rare_classes: ["{name}"] into site.yaml'
        expect(False, key, expected, Told(f"{rows} of class {name!r}"), advice, DataError)
    rows = target.get("mean", least)
    expected = f"at least {least} training rows, because the target's mean is sent"
    expect(rows >= least, key, expected, rows, "do not take part with so few rows", DataError)


def check_answers(run: Run, site: str, *, masked: bool) -> None:
    """Refuse to answer a rule's questions if too few training rows stand behind the answers, unless
    they enter masked sums.

    Args:
        run: the site's, with its table read and its network built.
        site: its name.
        masked: whether the federation masks sums.

    Raises:
        DataError: there are too few of them.
    """
    rows = run.loop.federation[site].rows_behind_answers
    are_hidden = masked and bool(run.exchange.rule.facts.adds_answers)
    if rows is None or are_hidden:
        return
    least = run.data.facts_from
    key = f"site {site}: data.facts_from"
    expected = f"at least {least} training rows behind its answers (events), or masked sums"
    advice = "set privacy.masked in federation.yaml, or do not take part"
    expect(rows >= least, key, expected, rows, advice, DataError)


def _names_of_slices(run: Run, site: str) -> set[str]:
    """Return the names of columns, categories and classes in the names of the tensors that are
    sent.
    """
    tensors = run.exchange.sharing.names[site]
    return {name.partition("[")[2].removesuffix("]") for name in tensors if name.endswith("]")}


def _coded_in_slices(run: Run, site: str, known: Iterable[str]) -> list[str]:
    """Return the further columns of which tensors that are sent name categories."""
    names = _names_of_slices(run, site)
    columns = run.data.encoders[site].columns
    coded = []
    for column, encoder in columns.items():
        slices = {f"{column}={plain_text(label)}" for label in encoder.categories}
        if column not in known and names & slices:
            coded.append(column)
    return coded

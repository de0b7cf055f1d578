"""What clients' tables have in common, as far as names, kinds of columns and classes tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fedlit.data.agree import Terms, agree, facts
from fedlit.mix.verdict import Common
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.spec import ClientSpec

__all__ = ["Survey", "survey"]


@dataclass(frozen=True)
class Survey:
    """What is known of tables before anything is tried.

    Attributes:
        common: client → what it has in common with others, and its rows for training and validation.
        tasks: client → the name of its task.
        models: names of go-alone models that some client's task has.
        notes: what a person should know.
    """

    common: dict[str, Common]
    tasks: dict[str, str]
    models: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, int]:
        """Client → its rows for training and validation."""
        return {name: own.rows for name, own in self.common.items()}

    @property
    def columns(self) -> list[str]:
        """Those that two clients or more have."""
        return sorted({column for own in self.common.values() for column in own.columns})


def survey(run: Run) -> Survey:
    """Look at the tables of a run that is not trained; reads names and kinds of columns, labels and numbers of rows.

    Args:
        run: whose tables are read and encoded.
    """
    run.data.setup()
    tables, specs = run.data.tables(), {spec.name: spec for spec in run.data.specs}
    terms = Terms(bins="agreed")  # columns of one name and kind meet, those of several kinds do not
    agreement = agree({table.name: facts(table, terms) for table in tables}, terms)
    labels = Counter(label for spec in specs.values() for label in set(_labels(spec)))
    common = {}
    for table in tables:
        spec = specs[table.name]
        shared = [
            column
            for column in map(str, table.features)
            if (met := agreement.met(table.name, column)) is not None and len(met.clients) > 1
        ]
        classes = _labels(spec)
        rows = spec.rows["train"] + spec.rows["validation"]
        alike = sum(labels[label] > 1 for label in classes)
        common[table.name] = Common(shared, table.features.shape[1], alike, len(classes), rows)
    targets = {table.name: str(table.target.name) for table in tables}
    notes = list(agreement.apart)
    if len(set(targets.values())) > 1:
        found = shorten([f"{target} at {client}" for client, target in targets.items()], 4)
        notes.append(f"targets are called differently ({found}): whether their labels mean the same, fedlit cannot see")
    models = frozenset(name for spec in specs.values() for name in spec.task.go_alone)
    return Survey(common, {name: spec.task.name for name, spec in specs.items()}, models, tuple(notes))


def _labels(spec: ClientSpec) -> list[str]:
    return [str(label) for label in spec.task.classes]

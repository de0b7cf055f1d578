"""The plan of a mixture: its parts, and what each sends from a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedlit.data.note import Note
from fedlit.mixture.settings import MixtureSettings
from fedlit.run.plan import Plan
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, more


@dataclass(frozen=True, repr=False)
class MixturePlan(Shown):
    """The plan of a mixture.

    Attributes:
        settings: the settings of the mixture.
        plans: maps each part to the plan of its run with the first fold.
        local: the parts in which no other client has a share: they send nothing from a client.
        pooled: the parts for which all rows are pooled.
    """

    settings: MixtureSettings
    plans: dict[str, Plan] = field(default_factory=dict)
    local: list[str] = field(default_factory=list)
    pooled: list[str] = field(default_factory=list)

    @property
    def networks(self) -> list[str]:
        """The local parts that are networks."""
        return [name for name in self.local if self.settings.parts[name].go_alone is None]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        parts = {
            name: {"own": name in self.local, **plan.to_dict()} for name, plan in self.plans.items()
        }
        return {"folds": self.settings.folds, "parts": parts}

    def parts(self) -> list[str | Grid]:
        """Return the table of clients' rows, each part with what it sends from a client, and how
        the parts are mixed.
        """
        separate = [name for name in self.plans if name not in self.pooled] or list(self.plans)
        rows = []
        for name, facts in self.plans[separate[0]].clients.items():
            counts = [f"{facts['rows'][split]:,}" for split in ("train", "validation", "test")]
            rows.append([name, *counts])
        unseen = "held out" if self.settings.folds else "validation"
        lines: list[str | Grid] = [
            Grid(["client", "train", unseen, "test"], rows[:MOST_ROWS]),
            *more(rows, "clients"),
            "",
        ]
        lines += [
            Grid(
                ["part", "what", "bytes/exchange", "told before"],
                [self._line(name) for name in self.plans],
            )
        ]
        lines += [self.sentence(name) for name in self.plans if name not in self.local]
        lines += [self._folds(), self._weights()]
        notes = self._notes()
        return [*lines, *(f"Note: {note}" for note in notes[:MOST_ROWS]), *more(notes, "notes")]

    def _notes(self) -> list[str]:
        """Return the notes of all parts, each once."""
        # With folds, all rows of a client choose, not the few validation rows of a fold.
        left_out = "few rows" if self.settings.folds else None
        notes = dict[str, None]()
        for plan in self.plans.values():
            for note in plan.notes:
                if not isinstance(note, Note) or note.kind != left_out:
                    notes.setdefault(note)
        return list(notes)

    def _line(self, name: str) -> list[str]:
        part = self.settings.parts[name]
        plan = self.plans[name]
        if part.go_alone is not None:
            return [name, f"own: {part.go_alone}", "0", "nothing"]
        config = part.config.stem if part.config.stem != "config" else "configuration"
        changed = ", ".join(f"{key} {value}" for key, value in part.set.items())
        whose = "rows pooled" if name in self.pooled else "federated"
        if name in self.local:
            whose = "own"
        content = f"{whose}: {config}{f' ({changed})' if changed else ''}"
        sent = sorted({facts["bytes_per_exchange"] for facts in plan.clients.values()})
        before = "yes" if plan.before else "nothing"
        size = " to ".join(f"{size:,}" for size in dict.fromkeys([sent[0], sent[-1]]))
        return [
            name,
            content,
            f"{size}, and answers" if plan.exchange.get("asks") else size,
            before,
        ]

    def sentence(self, name: str) -> str:
        """Describe what a part sends from a client, before training and in exchanges."""
        plan = self.plans[name]
        if name in self.pooled:
            return (
                f"{name}: all rows leave their clients: they are pooled (data.pool), for a "
                "comparison."
            )
        return f"{name}: {' '.join(plan.sentences())}"

    def _folds(self) -> str:
        folds = self.settings.folds
        parts = len(self.settings.parts)
        if not folds:
            return (
                f"{parts} parts are trained on the training rows; validation rows decide how "
                "they are mixed."
            )
        return (
            f"{parts} parts are trained {folds} times, each time without one of {folds} folds of "
            "the training and validation rows; held-out rows decide how parts are mixed, and the "
            "models of all folds are averaged."
        )

    def _weights(self) -> str:
        mixing = self.settings.mixing
        if isinstance(mixing.weights, dict):
            weights = ", ".join(f"{name} {weight:g}" for name, weight in mixing.weights.items())
            return f"Weights are given ({weights}), so all parts with a weight enter."
        if mixing.weights == "together":
            return (
                "Clients choose one way to mix together (equal weights, one half own, fitted, each "
                "of these without own networks, each federated part by itself, own parts alone; of "
                "five clients or more also the stack: a mixed model of the outcome on the mean of "
                "the parts, with a client's own intercept and slope). For this, each client sends "
                "one number for each of these, its mean loss in units of its own spread, and for "
                "the stack terms of that model's likelihood, of which only the sums are used. A "
                "client leaves the common choice only where its held-out rows are sure."
            )
        how = {
            "equal": "Weights are equal",
            "half_own": "Own parts share one half, federated ones the other",
            "fitted": "Each client fits weights to its held-out rows, shrunk to equal by "
            f"{mixing.shrink:g} rows a part",
        }[mixing.weights]
        if not mixing.admit:
            return f"{how}; all parts enter (mixture.admit is false)."
        return (
            f"{how}; a federated part enters only where it does not make a client's held-out "
            f"{mixing.by or 'scores'} worse."
        )

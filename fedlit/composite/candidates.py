"""What is worth a try for given tables: own models and federated ones, as configurations of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedlit.composite.survey import Survey
from fedlit.errors import ConfigError
from fedlit.tasks.go_alone import LINEAR, TREES

__all__ = ["ENOUGH", "Candidate", "alone", "candidates_of", "yours"]

ENOUGH = 500
"""With fewer rows for training and validation a client's own network is not tried."""

_LARGE, _TREES = 2000, 25
_KEPT = ("source", "columns", "mutations", "leave_out")  # keys of data that say which tables; others say how
_CLASSIFIES = {"classification", "regression"}

Content = Callable[[int], dict[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A part that may enter clients' mixtures.

    Attributes:
        name: of the part.
        label: as people read it in a sentence.
        go_alone: the name of a task's model; None for a configuration.
        grid: settings of that model to choose from; its own if None.
        epochs: of a configuration, if the budget allows; 0 where it cannot be cut.
        tail: how many more follow for each of these, at most.
        content: epochs → the configuration; None of a go-alone model and of the reader's own configuration.
        about: what stands above it.
    """

    name: str
    label: str
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None
    epochs: int = 0
    tail: float = 0.0
    content: Content | None = None
    about: str = ""

    @property
    def needed(self) -> bool:
        """Whether it is what others are compared with, so that nothing can be said without it."""
        return self.go_alone is not None


def alone(raw: Mapping[str, Any], rows: Mapping[str, int] | None = None) -> Content:
    """The client's own TabM, at those with enough rows.

    Args:
        raw: the reader's configuration.
        rows: client → its rows; None for all clients.
    """
    large = max((rows or {"": 0}).values()) >= _LARGE
    few = [name for name, count in (rows or {}).items() if count < ENOUGH]
    tables = _tables(raw)
    if few:
        tables["leave_out"] = [*(tables.get("leave_out") or []), *few]

    def content(epochs: int) -> dict[str, Any]:
        return {
            "data": {**tables, "batch_size": 128 if large else 32, "steps": 12, "num_bins": _bins(large)},
            "model": {
                "client": {"class_path": "fedlit.FederatedClient", "init_args": {"network": _tabm(large)}},
                "optimizer": _adamw(0.002), "average": 0.8, "keep": "loss",
            },
            "exchange": {"federated": []},
            "trainer": {"max_epochs": epochs},
        }  # fmt: skip

    return content


def candidates_of(raw: Mapping[str, Any], found: Survey) -> tuple[list[Candidate], dict[str, str]]:
    """Own parts, then federated ones, and why others are not tried.

    Args:
        raw: the reader's configuration.
        found: of its tables.

    Returns:
        Candidates, and name → why it is left out.

    Raises:
        ConfigError: no client's task has a go-alone model, so that there is nothing to compare with.
    """
    if not found.models:
        raise ConfigError(
            f"fedlit recommend: expected a task with go-alone models to compare with, found "
            f"{', '.join(sorted(set(found.tasks.values())))}: this task has no go-alone models. Compare methods by "
            "fedlit compare; each client's own network (exchange.federated: []) is the reference"
        )
    large, out = max(found.rows.values()) >= _LARGE, dict[str, str]()
    grid: dict[str, list[Any]] = {"n_estimators": [200 if large else 100], "min_samples_leaf": [1] if large else [1, 5]}
    grid["max_features"] = ["sqrt", None] if large else ["sqrt"]
    made = [Candidate("trees", "its own trees", TREES[0], grid)] if TREES[0] in found.models else []
    linear = [name for name in LINEAR if name in found.models]
    made += [Candidate(name if len(linear) > 1 else "linear", "its own linear model", name) for name in linear]
    if max(found.rows.values()) >= ENOUGH:
        about = f"TabM at each client with {ENOUGH} rows or more, on its own rows. Nothing is exchanged."
        made.append(Candidate("network", "its own TabM", epochs=60, content=alone(raw, found.rows), about=about))
    else:
        out["network"] = f"no client has {ENOUGH} rows for a network of its own"
    if len(found.rows) < 2:
        return made, out | {"forest, logistic, tabm": "there is one client, so nobody to share with"}
    shared, tasks = found.columns, set(found.tasks.values())
    problem = "" if shared else "no column is shared by two clients; give columns that mean the same one name"
    if not problem and (len(tasks) > 1 or not tasks <= _CLASSIFIES):
        problem = (
            f"it takes clients that all predict one label, or all one number; tasks are {', '.join(sorted(tasks))}"
        )
    if problem:
        out["forest, logistic"] = problem
    else:
        made += [_logistic(raw), _forest(raw, large)]
    return [*made, _federated(raw, large, bool(shared))], out


def yours(raw: Mapping[str, Any], name: str) -> tuple[Candidate | None, str]:
    """The method of the reader's own configuration, if it has one; or why it is not tried.

    Args:
        raw: the reader's configuration.
        name: of its file.
    """
    if "model" not in raw and "exchange" not in raw:
        return None, ""
    if (raw.get("data") or {}).get("pool"):
        return None, "data.pool puts all rows into one place, so it is no federation"
    trainer = raw.get("trainer") or {}
    if trainer.get("max_steps") or trainer.get("max_time"):
        return None, "its length is trainer.max_steps or max_time, which no budget can cut; give trainer.max_epochs"
    return Candidate("yours", name, epochs=int(trainer.get("max_epochs") or 1000)), ""


def _logistic(raw: Mapping[str, Any]) -> Candidate:
    about = (
        "Logistic (of a number: ridge) regression at each client, whose coefficients of shared columns are drawn to\n"
        "# what all others found. One exchange finds the exact optimum."
    )
    content = {
        "data": {**_tables(raw), "batches": 1, "scaling": "pooled", "categories": "indicators"},
        "model": {"client": "fedlit.PooledLogistic", "threads": 1},
        "exchange": {"federated": ["prior"], "rule": "fedlit.exchange.rules.Newton"},
        "trainer": {"max_epochs": 1},
    }
    return Candidate("logistic", "the pooled linear model", content=lambda epochs: content, about=about)


def _forest(raw: Mapping[str, Any], large: bool) -> Candidate:
    rule = {"trees": _TREES, "minimum": 5, "max_features": 1.0 if large else 0.3}

    def content(epochs: int) -> dict[str, Any]:
        return {
            "data": {**_tables(raw), "batches": 1, "align": "both", "scaling": "pooled"},
            "model": {"client": {"class_path": "fedlit.Forest"}},
            "exchange": {
                "federated": [], "every": "epoch",
                "rule": {"class_path": "fedlit.exchange.rules.GrowForest", "init_args": rule},
            },
            "trainer": {"max_epochs": epochs},
        }  # fmt: skip

    about = f"A forest that all clients grow together, by sums that each tells of its rows; {_TREES} trees an epoch."
    return Candidate("forest", "the forest", epochs=8, content=content, about=about)


def _federated(raw: Mapping[str, Any], large: bool, shared: bool) -> Candidate:
    def content(epochs: int) -> dict[str, Any]:
        return {
            "data": {
                **_tables(raw), "batch_size": 128 if large else 32, "steps": 10, "bins": "agreed",
                "num_bins": _bins(large),
            },
            "model": {
                "client": {"class_path": "fedlit.FederatedClient", "init_args": {"network": _tabm(large)}},
                "optimizer": _adamw(0.003),
                "scheduler": {
                    "class_path": "torch.optim.lr_scheduler.CosineAnnealingLR", "init_args": {"T_max": epochs}
                },
                "average": round(max(0.0, 1 - 15 / epochs), 3), "keep": "loss",
                "then": {
                    "fine_tune": {"epochs": max(1, epochs // 3), "patience": 4, "lr": 0.001, "average": 0.85}
                },
            },
            "exchange": {
                "federated": ["*", "!*.scale", "!encoder.first.bias", "!core.*.bias"], "by_name": ["*"],
                "rule": {"class_path": "fedlit.FedAvgM", "init_args": {"momentum": 0.6}},
            },
            "trainer": {"max_epochs": epochs, "check_val_every_n_epoch": 5 if epochs >= 60 else 1},
        }  # fmt: skip

    what = "columns, categories and classes" if shared else "no column, so classes of one name and the backbone"
    about = (
        f"TabM, federated by name: clients share {what}; scales and biases behind the weights stay private.\n"
        "# Then each client trains on by itself, from its best round."
    )
    return Candidate("tabm", "the federated TabM", None, None, 233 if large else 60, 1 / 3, content, about)


def _tables(raw: Mapping[str, Any]) -> dict[str, Any]:
    data = raw.get("data") or {}
    return {key: data[key] for key in _KEPT if data.get(key) is not None}


def _bins(large: bool) -> int:
    return 32 if large else 16


def _tabm(large: bool) -> dict[str, Any]:
    sizes = {} if large else {"width": 64, "embedding": 8, "num_bins": _bins(large)}
    return {"class_path": "fedlit.TabM", **({"init_args": sizes} if sizes else {})}


def _adamw(lr: float) -> dict[str, Any]:
    return {"class_path": "torch.optim.AdamW", "init_args": {"lr": lr, "weight_decay": 0.01}}

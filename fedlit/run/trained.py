"""A trained run as far as its clients and their tables are needed: it scores rows, and imports
neither Lightning nor what trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from fedlit.client.build import ClientFactory, ClientOverride, build_client, find_override
from fedlit.client.client import FederatedClient
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.run.arguments import read
from fedlit.run.folders import config_of
from fedlit.run.parsing import new_parser, parsing
from fedlit.run.scoring import ScoreSettings
from fedlit.run.served import scorers_of, set_up
from fedlit.score.scorer import Scorer
from fedlit.spec import ClientSpec


@dataclass(frozen=True)
class Origin:
    """Where the tables of a run come from.

    Attributes:
        source: the source of the tables.
        seed: the seed of the run, by which they are split.
        folds: the number of folds that the run uses of them; 0 for none.
    """

    source: Source
    seed: int
    folds: int

    def table(self, client: str) -> ClientTable:
        """Return one client's table, as the source gives it."""
        (table,) = self.source.some([client], self.seed)
        return table


@dataclass(frozen=True)
class TrainedRun:
    """The parts of a trained run that score rows.

    Attributes:
        origin: where its tables come from.
        seed: its seed.
        client: makes a client from its description.
        overrides: client's name or pattern → its own settings.
        batch: rows per batch when rows are scored.
        score: what is scored beside the usual scores.
        precision: the precision in which it was trained.
    """

    origin: Origin
    seed: int
    client: ClientFactory
    overrides: Mapping[str, ClientOverride]
    batch: int
    score: ScoreSettings
    precision: str

    def fresh(self, spec: ClientSpec) -> FederatedClient:
        """Return a client as it was before training."""
        factory = find_override(self.overrides, spec.name).client or self.client
        return build_client(factory, spec, self.seed)

    def scorer(self, client: str, checkpoint: Path) -> Scorer:
        """Return a client as it was when a checkpoint was written.

        Raises:
            ConfigError: there is no such client, or the checkpoint has other networks.
        """
        scorers = scorers_of(self, self.batch, checkpoint, [client])
        set_up(scorers, checkpoint, self.precision, self.score.threshold)
        return scorers[client]


@cache
def _parser() -> ArgumentParser:
    """Return the parser of the keys that a trained run needs, typed as those of
    :class:`~fedlit.train.loop.FederatedLoop` and :class:`~fedlit.data.module.FederatedData`.
    """
    parser = new_parser(ArgumentParser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data.source", type=Source)
    parser.add_argument("--data.folds", type=int, default=0)
    parser.add_argument("--data.eval_batch_size", type=int, default=1024)
    parser.add_argument("--model.client", type=ClientFactory)
    parser.add_argument("--model.overrides", type=dict[str, ClientOverride] | None)
    parser.add_class_arguments(ScoreSettings, "score")
    return parser


def trained_run(folder: Path) -> TrainedRun:
    """Read the run of a folder, from its saved configuration.

    Raises:
        ConfigError: there is no configuration, or it is not valid.
    """
    request = read("describe", ["--config", str(config_of(folder))], of_run=True)
    content = request.content
    with parsing(request):
        parser = _parser()
        ready = parser.instantiate(parser.parse_object(_needed(content)))
    trainer = content.get("trainer") or {}
    return _of(ready, str(trainer.get("precision") or "32-true"))


_NEEDED = {
    "data": ("source", "folds", "eval_batch_size"),
    "model": ("client", "overrides"),
    "score": ("threshold", "subgroups"),
}
"""The keys of a configuration that a trained run needs, beside the seed, by section."""


def _needed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a configuration that a trained run needs, nested."""
    needed: dict[str, Any] = {"seed": content.get("seed", 0)}
    for section, names in _NEEDED.items():
        settings = content.get(section) or {}
        needed[section] = {name: settings[name] for name in names if name in settings}
    return needed


def _of(ready: Namespace, precision: str) -> TrainedRun:
    return TrainedRun(
        origin=Origin(ready.data.source, ready.seed, ready.data.folds),
        seed=ready.seed,
        client=ready.model.client,
        overrides=ready.model.overrides or {},
        batch=ready.data.eval_batch_size,
        score=ready.score,
        precision=precision,
    )

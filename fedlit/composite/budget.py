"""A budget in seconds: what candidates cost, by a short try of each, and how many folds and epochs it allows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from fedlit.composite.alone import fit_alone
from fedlit.composite.candidates import Candidate
from fedlit.composite.parts import Part, client_rows, held_out
from fedlit.composite.settings import PartSettings
from fedlit.errors import ConfigError
from fedlit.run.options import listed

__all__ = ["Choice", "Cost", "choose", "pilot"]

_TRIED = 3  # epochs
_LEAST = 1 / 8  # of the epochs that a candidate should have; with fewer it would be judged by what it is not
_MARGIN = 1.2  # a short try is a little too fast


@dataclass(frozen=True)
class Cost:
    """What a candidate was measured to take.

    Attributes:
        fixed: seconds of a fold, whatever the number of epochs; of a go-alone model all seconds of two folds.
        epoch: seconds of an epoch.
        bytes: that travel in an exchange, from and to all clients.
        exchanges: of an epoch.
    """

    fixed: float
    epoch: float = 0.0
    bytes: float = 0.0
    exchanges: float = 0.0

    def seconds(self, own: Candidate, folds: int, epochs: int, workers: int = 1) -> float:
        """Of all folds.

        Args:
            own: whose cost it is.
            folds: how many.
            epochs: of each.
            workers: processes at once.
        """
        if own.go_alone is not None:  # k folds of (k − 1) / k of the rows, against two of one half
            return _MARGIN * self.fixed * (folds - 1)
        rounds = -(-folds // min(workers, folds))
        return _MARGIN * rounds * (self.fixed + self.epoch * epochs * (1 + own.tail))


@dataclass(frozen=True)
class Choice:
    """What is going to be trained.

    Attributes:
        folds: how many.
        epochs: candidate → its epochs; 0 where there are none to choose.
        seconds: candidate → what it will take, by the pilot.
        out: candidate → why it is left out.
    """

    folds: int
    epochs: dict[str, int]
    seconds: dict[str, float]
    out: dict[str, str] = field(default_factory=dict)


class _Clock(Callback):
    """When epochs begin, and the last one ends."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_epoch_start(self, *args: Any) -> None:
        """An epoch begins."""
        self.times.append(time.perf_counter())

    def on_train_end(self, *args: Any) -> None:
        """All are over."""
        self.times.append(time.perf_counter())


def pilot(own: Candidate, config: Path, folder: Path, seed: int, folds: int, by: str | None) -> Cost:
    """Train a little of a candidate, in a folder that is thrown away.

    Args:
        own: the candidate.
        config: its file.
        folder: for what is trained.
        seed: of the run.
        folds: into how many rows are dealt.
        by: the score that chooses settings of go-alone models.

    Raises:
        FedlitError: it cannot be trained on these tables.
    """
    begun, clock = time.perf_counter(), _Clock()
    try:
        if own.go_alone is not None:
            part = Part(
                own.name, PartSettings(config, go_alone=own.go_alone, grid=own.grid), folder / own.name, seed, 2
            )
            fit_alone(part, by)
            return Cost(time.perf_counter() - begun)
        few = {"trainer.max_epochs": min(own.epochs, _TRIED)} if own.epochs else {}
        settings = PartSettings(config, {**few, "model.then": None} if own.epochs else few)
        part = Part(own.name, settings, folder / own.name, seed, folds)
        run = part.load(0)
        run.trainer_options["callbacks"] = [*listed(run.trainer_options.get("callbacks")), clock]
        run.fit(quiet=True)
        rows = client_rows(run.data, "validation")
        held_out({name: run.client(name, part.checkpoint(0)) for name in rows}, rows)
        rounds, travelled = run.exchange.rounds, run.exchange.bytes
    finally:
        shutil.rmtree(folder / own.name, ignore_errors=True)
    total, trained = time.perf_counter() - begun, len(clock.times) - 1
    each = (clock.times[-1] - clock.times[0]) / trained if own.epochs else 0.0
    return Cost(total - each * trained, each, travelled / max(rounds, 1), rounds / trained)


def choose(
    candidates: Sequence[Candidate], costs: Mapping[str, Cost], seconds: float, folds: int, workers: int = 1
) -> Choice:
    """As many folds as asked for, or two where these leave room for more candidates; epochs as the budget allows.

    Cheap candidates get all their epochs, others equal shares of what is left. Where one would have less than an eighth
    of its epochs, the one that takes most is left out.

    Args:
        candidates: with own ones first.
        costs: of each.
        seconds: that are left.
        folds: as asked for.
        workers: processes at once.

    Raises:
        ConfigError: not even the own models that others are compared with.

    Example:
        >>> network = Candidate("network", "", epochs=100)
        >>> costs = {"network": Cost(fixed=5.0, epoch=0.5)}
        >>> found = choose([network], costs, 300.0, folds=4)
        >>> found.folds, found.epochs, round(found.seconds["network"])
        (4, {'network': 100}, 264)
        >>> choose([network], costs, 150.0, folds=4).epochs  # 4 × 1.2 × (5 + 0.5 × 52) = 149
        {'network': 52}
    """
    tried = [_choose(candidates, costs, seconds, own, workers) for own in dict.fromkeys((folds, 2))]
    return max(tried, key=lambda own: len(own.epochs))  # the first of equals


def _choose(
    candidates: Sequence[Candidate], costs: Mapping[str, Cost], seconds: float, folds: int, workers: int
) -> Choice:
    left, out = [own for own in candidates if own.name in costs], dict[str, str]()
    while True:
        fixed = {own.name: costs[own.name].seconds(own, folds, 0, workers) for own in left}
        whole = {own.name: costs[own.name].seconds(own, folds, own.epochs, workers) for own in left}
        moving = {name: whole[name] - fixed[name] for name in whole}
        room = seconds - sum(fixed.values())
        most = _level(list(moving.values()), room)
        epochs = {
            own.name: int(own.epochs * min(1.0, most / moving[own.name])) if moving[own.name] > 0 else own.epochs
            for own in left
        }
        enough = room >= 0 and all(epochs[own.name] >= own.epochs * _LEAST for own in left)
        if enough:
            taken = {own.name: costs[own.name].seconds(own, folds, epochs[own.name], workers) for own in left}
            return Choice(folds, epochs, taken, out)
        others = [own for own in left if not own.needed]
        if not others:
            raise ConfigError(
                f"--budget: expected time for each client's own models, some {sum(whole.values()):,.0f} s beside the "
                f"pilot, found {max(seconds, 0):,.0f} s left; give more, or --folds 2"
            )
        last = max(others, key=lambda own: whole[own.name])
        left.remove(last)
        out[last.name] = f"it would take {whole[last.name]:,.0f} s with {folds} folds; give a larger --budget"


def _level(wanted: Sequence[float], room: float) -> float:
    """The most that each may have, so that all fit.

    Example:
        >>> _level([1.0, 4.0, 9.0], 7.0)
        3.0
    """
    level, left = 0.0, list(wanted)
    while left:
        share = room / len(left)
        small = [own for own in left if own <= share]
        if not small:
            return max(share, 0.0)
        room -= sum(small)
        left = [own for own in left if own > share]
        level = max(level, *small)
    return level

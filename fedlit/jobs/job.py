"""A job: one run of a study, or one training of a part of a mixture.

A job is plain data, so that a worker process can receive it. It lists by name all settings that
determine its result (``made_of``); their hash is the job's ``digest``. The record of a finished job
contains both (see :mod:`fedlit.jobs.record`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

# Keys that do not change what is computed, beyond rounding.
_FREE = (
    "name", "board.", "checkpoint.", "data.known", "model.threads", "score.", "trainer.default_root_dir",
    "trainer.enable_progress_bar",
)  # fmt: skip


@dataclass(frozen=True)
class Train:
    """Trains a federation, or a mixture of several parts.

    Attributes:
        config: the configuration file.
        overrides: maps each changed key to its value.
        checkpoint: the state that is scored; the parts of a mixture have their own setting.
        test: whether the test split is scored; runs that tune settings must not look at it.
        mixture: whether the configuration has several parts.
    """

    config: str
    overrides: dict[str, Any]
    checkpoint: Literal["last", "best"] = "last"
    test: bool = True
    mixture: bool = False


@dataclass(frozen=True)
class FitAlone:
    """Fits a local baseline for each client whose task has it.

    Attributes:
        config: the configuration file that determines the data.
        overrides: maps each changed key to its value.
        grid: maps each task to the settings from which the best are chosen; a task that is missing
            has the default grid of the model, or in studies no such model.
        model: the study's description of the model, if it is of any class.
        folds: the number of folds on which the model is fitted; 0 for training rows alone.
        small: the number of validation rows below which settings are chosen by out-of-fold
            predictions.
        clients: the clients that may have the model. Each is fitted by itself, so that several
            processes can share the job.
    """

    config: str
    overrides: dict[str, Any]
    grid: dict[str, dict[str, list[Any]]]
    model: dict[str, Any] | None = None
    folds: int = 0
    small: int = 0
    clients: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Combine:
    """Mixes stored predictions.

    Attributes:
        parts: maps each part to folders of runs; a client uses the first that has it.
        mixing: how the parts of a mixture, whose folder contains their predictions, are mixed:
            weights, shrink, admit. None for the mean of the runs' predictions.
    """

    parts: dict[str, list[str]]
    mixing: dict[str, Any] | None = None


Work = Train | FitAlone | Combine
_KINDS: dict[str, type[Work]] = {kind.__name__: kind for kind in (Train, FitAlone, Combine)}


@dataclass(frozen=True)
class Job:
    """The description of a run, which is sent to a worker process.

    Attributes:
        method: the name of the method, the baseline, or the part of a mixture.
        seed: the run's seed.
        folder: the folder of the results.
        made_of: maps the name of each setting that determines the result to its value.
        work: the work to do.
        choose: maps each client to the metric by which it chooses on validation rows.
        bootstrap: the number of resamples of the test rows.
        settings: the combination of settings of a tuned method; None for any other method.
        left_out: the client without which the federation is trained; None if all take part.
        fold: the fold whose rows are held out, of a mixture's part that is trained for each fold
            by itself.
    """

    method: str
    seed: int
    folder: str
    made_of: dict[str, Any]
    work: Work
    choose: dict[str, str] = field(default_factory=dict)
    bootstrap: int = 0
    settings: dict[str, Any] | None = None
    left_out: str | None = None
    fold: int | None = None

    def request(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return {**asdict(self), "kind": type(self.work).__name__}

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Job:
        """Restore a job from its :meth:`request`."""
        fields = {key: value for key, value in request.items() if key != "kind"}
        return cls(**{**fields, "work": _KINDS[request["kind"]](**request["work"])})

    @cached_property
    def digest(self) -> str:
        """A hash of everything that the run is computed from. A folder whose record has another one
        holds no result of the job.
        """
        return digest_of(self.made_of)

    @property
    def after(self) -> list[str]:
        """The folders of the runs from which the job is computed."""
        if not isinstance(self.work, Combine):
            return []
        return list(dict.fromkeys(itertools.chain.from_iterable(self.work.parts.values())))

    @property
    def trainings(self) -> int:
        """How many trainings the job counts for where time is limited: a local baseline is fitted
        to each fold.
        """
        return max(1, self.work.folds) if isinstance(self.work, FitAlone) else 1

    @property
    def pieces(self) -> list[str]:
        """The clients for which the job's work can be done at the same time; none if it is not
        divided.
        """
        clients = self.work.clients if isinstance(self.work, FitAlone) else []
        return clients if len(clients) > 1 else []

    @property
    def variant(self) -> str:
        """The name of the method with its combination of settings."""
        return variant_name(self.method, self.settings)

    @property
    def title(self) -> str:
        """The name, for the user, of what is run with every seed."""
        without = f" without {self.left_out}" if self.left_out is not None else ""
        return f"{title_of(self.method, self.settings)}{without}"

    @property
    def name(self) -> str:
        """The name of the job, for the user."""
        if self.fold is not None:
            return f"{self.title}, fold {self.fold}"
        return f"{self.title}, seed {self.seed}"


def variant_name(
    method: str, settings: Mapping[str, Any] | None, left_out: str | None = None
) -> str:
    """Return the folder name of a method's runs with a combination of settings, with all clients or
    without one. All names differ, because no method's name contains ``@`` or ``~``.
    """
    variant = f"{method}@{digest_of(settings)}" if settings else method
    return variant if left_out is None else f"{variant}~{left_out}"


def title_of(method: str, settings: Mapping[str, Any] | None) -> str:
    """Return the name of a method with a combination of settings, for the user.

    Example:
        >>> title_of("gl", {"exchange.rate": 0.5}), title_of("gl", None)
        ('gl (exchange.rate=0.5)', 'gl')
    """
    changes = ", ".join(f"{key}={json.dumps(value)}" for key, value in (settings or {}).items())
    return f"{method} ({changes})" if changes else method


def is_free(key: str) -> bool:
    """Return whether a configuration key changes nothing that is computed, except by rounding."""
    return key.startswith(_FREE)


def digest_of(value: Any) -> str:
    """Return a hash that changes with any part of the value."""
    return hashlib.blake2b(
        json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8
    ).hexdigest()

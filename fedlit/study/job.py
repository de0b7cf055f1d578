"""A job of a study: one method, or local baseline, with one seed; its folder, and what lies there when it is done.

<study>/runs/<method>/seed_<n>/DONE                  what was run, with which versions, how long: written last
                              /predictions.parquet   of validation and test rows; out_of_fold: of rows that a fold of a
                                                     local baseline was not trained on
                              /scores.csv            split, client, metric, value
                              /bootstrap.parquet     test scores of resampled rows
                              /corrections.csv       what clients correct at the end, of methods that show it
                              /clusters.csv          who is together, round by round, of methods that tell clients apart
                              /pairs.csv             what they measured between clients, of methods that compare them
                              /version_0/            what every run of fedlit has: configuration, events

A federation that is trained without one of its clients has <study>/runs/<method>~<client>/.

Of a tuned method each combination of settings has its own <study>/runs/<method>@<digest of the settings>/: where values
are added to a grid, or it is put in another order, what was trained before still counts. ``DONE`` has the settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedlit.data.encoding import UNION_SITE
from fedlit.files import read_named
from fedlit.study.frames import SCORE_FILE
from fedlit.study.study import Study

__all__ = [
    "BESIDE", "BOOTSTRAP", "DONE", "FORMAT", "Combine", "FitAlone", "Job", "Train", "Work", "digest_of",
    "each_variant", "finished", "is_free", "title_of", "validation_scores", "variant_name",
]  # fmt: skip

# Of what is written and how it is computed: runs of another format are run again.
FORMAT = 3
DONE = "DONE"
BESIDE = ("loss", "classes")  # what stands beside the scores by which models are judged
BOOTSTRAP = "bootstrap.parquet"

# Keys that do not change what is computed, beyond rounding.
_FREE = ("name", "board.", "checkpoint.", "model.threads", "trainer.default_root_dir", "trainer.enable_progress_bar")


@dataclass(frozen=True)
class Train:
    """A federation is trained, or a mixture of several parts.

    Attributes:
        config: its configuration's file.
        overrides: changed keys → their values.
        checkpoint: which state is scored; a mixture's parts say that themselves.
        test: whether the test split is scored; settings that are tuned must not look at it.
        mixture: whether the configuration has several parts.
    """

    config: str
    overrides: dict[str, Any]
    checkpoint: Literal["last", "best"] = "last"
    test: bool = True
    mixture: bool = False


@dataclass(frozen=True)
class FitAlone:
    """A local baseline is fitted by each client whose task has it.

    Attributes:
        config: the reference's configuration, whose data it gets.
        overrides: changed keys → their values.
        grid: task → settings of which the best are chosen.
        model: of any class, what the study says of it.
        folds: of training and validation rows, on which it is fitted; 0 for training rows alone.
        small: validation rows below which settings are chosen by out-of-fold predictions.
    """

    config: str
    overrides: dict[str, Any]
    grid: dict[str, dict[str, list[Any]]]
    model: dict[str, Any] | None = None
    folds: int = 0
    small: int = 0


@dataclass(frozen=True)
class Combine:
    """What was predicted is mixed.

    Attributes:
        parts: name → folders of runs, of which a client takes the first that has it.
        mixing: of parts of a mixture, in whose folder their predictions lie: weights, shrink, admit. None for the mean
            of what runs predicted.
    """

    parts: dict[str, list[str]]
    mixing: dict[str, Any] | None = None


Work = Train | FitAlone | Combine
_KINDS: dict[str, type[Work]] = {kind.__name__: kind for kind in (Train, FitAlone, Combine)}


@dataclass(frozen=True)
class Job:
    """What a worker process is asked to run.

    Attributes:
        method: name of the method, or of the baseline.
        seed: the run's seed.
        folder: where it goes.
        digest: changes with whatever the run is computed from: a folder whose ``DONE`` has another one is no result.
        work: what is done.
        choose: the metric to choose by, on validation, or client → its own.
        bootstrap: resamples of the test rows.
        settings: of a tuned method, the combination; None for any other.
        left_out: the client without which the federation is trained; None where all take part.
    """

    method: str
    seed: int
    folder: str
    digest: str
    work: Work
    choose: str | dict[str, str] = ""
    bootstrap: int = 0
    settings: dict[str, Any] | None = None
    left_out: str | None = None

    def request(self) -> dict[str, Any]:
        """The job as plain data."""
        return {**asdict(self), "kind": type(self.work).__name__}

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Job:
        """The job whose :meth:`request` it is."""
        own = {key: value for key, value in request.items() if key != "kind"}
        return cls(**{**own, "work": _KINDS[request["kind"]](**request["work"])})

    @property
    def after(self) -> list[str]:
        """The folders of the runs that it is computed from."""
        every = self.work.parts.values() if isinstance(self.work, Combine) else ()
        return list(dict.fromkeys(folder for folders in every for folder in folders))

    @property
    def variant(self) -> str:
        """The method, with which of its combinations."""
        return variant_name(self.method, self.settings)

    @property
    def title(self) -> str:
        """What is run with every seed, as people read it."""
        without = f" without {self.left_out}" if self.left_out is not None else ""
        return f"{title_of(self.method, self.settings)}{without}"

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.title}, seed {self.seed}"


def variant_name(method: str, settings: Mapping[str, Any] | None, left_out: str | None = None) -> str:
    """The folder of a method's runs with a combination of settings, with all clients or without one: no two have the
    same. No method has an ``@`` or a ``~``.
    """
    own = f"{method}@{digest_of(settings)}" if settings else method
    return own if left_out is None else f"{own}~{left_out}"


def title_of(method: str, settings: Mapping[str, Any] | None) -> str:
    """How a combination of a tuned method is called where people read it.

    Example:
        >>> title_of("gl", {"exchange.rate": 0.5}), title_of("gl", None)
        ('gl (exchange.rate=0.5)', 'gl')
    """
    own = ", ".join(f"{key}={json.dumps(value)}" for key, value in (settings or {}).items())
    return f"{method} ({own})" if own else method


def each_variant(study: Study) -> list[tuple[str, dict[str, Any]]]:
    """All methods with each of their combinations of settings; of a method that is not tuned that is none."""
    return [(name, tuned) for name, method in study.methods.items() for tuned in method.combinations]


def is_free(key: str) -> bool:
    """Whether a key of a configuration changes nothing that is computed, beyond rounding."""
    return key.startswith(_FREE)


def digest_of(value: Any) -> str:
    """Changes with whatever the value is made of."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def finished(job: Job) -> dict[str, Any] | None:
    """What a job's ``DONE`` says, None if it has not been run to the end in this form."""
    folder = Path(job.folder)
    try:
        record: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
        complete = all((folder / name).stat().st_size == size for name, size in record["files"].items())
        return record if complete and record["digest"] == job.digest else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # missing, cut short, or of another kind
        return None


def validation_scores(job: Job) -> pd.DataFrame:
    """A finished job's scores on validation rows, without those of the union of a pooled run's rows."""
    scores = read_named(Path(job.folder) / SCORE_FILE)
    return scores[(scores["split"] == "validation") & (scores["client"] != UNION_SITE)]

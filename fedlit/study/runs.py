"""Executes one run of a study: trains a method or fits a local baseline, scores it, and writes the
results to the job's folder.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlit.jobs import record
from fedlit.jobs.job import Combine, Job, Train
from fedlit.jobs.training import train
from fedlit.run.load import load
from fedlit.run.predictions import scored_rows
from fedlit.run.run import Run
from fedlit.seeding import derive_seed
from fedlit.study.baselines import fit_baseline, fit_client
from fedlit.study.job import BESIDE, BOOTSTRAP, PREDICTIONS, JobResults
from fedlit.study.mixtures import combined, train_mixture
from fedlit.tasks import COMPARED
from fedlit.tasks.frames import is_target
from fedlit.tasks.predictions import Predictions, PredictionTable
from fedlit.train.results import Results


def serve(request: Mapping[str, Any]) -> None:
    """Do the work of a job, or of one of its clients; a worker process calls this. Runs of a study
    have no time limit.
    """
    job = Job.of(request["job"])
    if request["client"] is None:
        execute(job)
    else:
        fit_client(job, request["client"])


def execute(job: Job) -> None:
    """Do the work of a job to the end, and write its record.

    An interrupted run of a method is resumed from its last checkpoint if it has this configuration.
    """
    record.execute(job, _work)
    _drop_checkpoints(Path(job.folder))


def keep_result(job: Job, run: Run, trained: Results) -> None:
    """Score a run that was trained elsewhere, and mark a job as done with its result.

    Args:
        job: the job of which it is the result; its folder must be new.
        run: the run after :meth:`~fedlit.run.run.Run.fit`.
        trained: the results of that training.
    """
    folder = Path(job.folder)
    folder.mkdir(parents=True)
    record.write_record(job, _written(job, *_scored(job, run, trained)))
    _drop_checkpoints(folder)


def _work(job: Job, seconds: float | None) -> record.Output:
    """Train or fit what a job says, and write its predictions and scores to its folder."""
    if isinstance(job.work, Train):
        results, details = train_mixture(job) if job.work.mixture else _train(job, seconds)
        return _written(job, results, details)
    folder = Path(job.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    results, details = combined(job) if isinstance(job.work, Combine) else fit_baseline(job)
    return _written(job, results, details)


def _written(job: Job, results: JobResults, details: dict[str, Any]) -> record.Output:
    """Write the results of a job to its folder."""
    folder = Path(job.folder)
    results.write(folder)
    predictions = results.table.frame
    if job.bootstrap:
        tested = read_tested(PredictionTable.read(folder / PREDICTIONS))
        bootstrap_scores(tested, job.bootstrap).to_parquet(folder / BOOTSTRAP)
    about_rows = {
        "one_class": _one_class(predictions),
        "rows": {str(client): _rows(rows) for client, rows in predictions.groupby("client")},
    }
    files = [path for path in folder.iterdir() if path.suffix in (".csv", ".parquet")]
    resumed = bool(details.pop("resumed", False))
    seconds = float(details.pop("seconds", 0.0))
    return record.Output(files, about_rows | details, resumed, seconds)


def _drop_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run whose results are complete."""
    for checkpoints in folder.glob("version_*/checkpoints"):
        shutil.rmtree(checkpoints)


def _one_class(predictions: pd.DataFrame) -> dict[str, str]:
    """Map a client to the predicted class if the same class is predicted for all of its test rows
    although their targets differ.
    """
    constant = {}
    for client, rows in predictions[predictions["split"] == "test"].groupby("client"):
        classes = rows.loc[:, rows.columns.str.startswith("probability_")].notna().any().sum()
        multilabel = (
            "target" not in rows or rows["target"].isna().all()
        )  # labels a row: a column each
        if (
            not multilabel
            and classes > 1
            and rows["target"].nunique() > 1
            and rows["predicted"].nunique() == 1
        ):
            constant[str(client)] = str(rows["predicted"].iloc[0])
    return constant


def _rows(predictions: pd.DataFrame) -> dict[str, Any]:
    """Return what identifies the rows on which a run was scored."""
    identified: dict[str, Any] = {}
    for split, group in predictions.groupby("split"):
        rows = group.sort_values("row")
        # Beside other clients, a client's rows have columns of theirs, in another order; neither
        # these columns nor the order may change the digest.
        columns = sorted(str(c) for c in rows if is_target(c) and rows[c].notna().any())
        labels = "\n".join([_lines(rows[column]) for column in columns])
        digest = hashlib.blake2b(rows["row"].to_numpy().tobytes() + labels.encode(), digest_size=8)
        identified[str(split)] = {"digest": digest.hexdigest(), "rows": len(rows)}
    return identified


def _lines(labels: pd.Series) -> str:
    return "\n".join(labels.fillna(""))


def _train(job: Job, seconds: float | None) -> tuple[JobResults, dict[str, Any]]:
    assert isinstance(job.work, Train)
    folder = Path(job.folder)
    best = best_checkpoint(job.work.checkpoint, job.choose)
    run_settings = {
        "seed": job.seed,
        "name": folder.name,
        "trainer.default_root_dir": str(folder.parent),
        **best,
    }
    # Pictures of every run would take as long as a short training.
    pictures = {"board.pictures": 0}
    run = load(job.work.config, overrides={**pictures, **job.work.overrides, **run_settings})
    # An interrupted run must have kept the checkpoints that are required.
    keys = ("checkpoint.",) if best else ()
    trained = train(run, seconds, keys)
    results, details = _scored(job, run, trained.results)
    return results, {**details, "resumed": trained.resumed}


def _scored(job: Job, run: Run, trained: Results) -> tuple[JobResults, dict[str, Any]]:
    """Return the predictions and scores of a run's clients, and details for its record."""
    assert isinstance(job.work, Train)
    checkpoint = job.work.checkpoint
    validation = run.validate("best", quiet=True) if checkpoint == "best" else trained
    splits = [validation, run.test(checkpoint, quiet=True)] if job.work.test else [validation]
    job_results = JobResults()
    for results in splits:
        # Pooled rows are scored by client; their union is no client.
        for client, predictions in scored_rows(run.loop, run.data, results.split).items():
            scores = results.scores[client]
            compared = {
                metric: scores[metric]
                for metric in scores
                if metric in COMPARED or metric in BESIDE
            }
            job_results.add(client, results.split, predictions, compared)
    train_rows = dict[str, int]()
    for spec in run.data.specs:
        train_rows |= {site.name: site.rows["train"] for site in spec.sites}
    exchange = run.exchange
    details: dict[str, Any] = {
        "exchange": {
            "rounds": exchange.rounds,
            "bytes": exchange.bytes,
            "seconds": exchange.seconds,
        },
        "leaves": {
            "patterns": list(exchange.federated),
            "numbers": {name: _federated(run, name) for name in run.loop.federation.clients},
            "before": [
                f"{message['what']} for {message['key']}" for message in run.data.told_before
            ],
            "rounds": exchange.rounds,
        },
        "train_rows": train_rows,
    }
    if exchange.incident_counts:
        details["guarded"] = exchange.incident_counts
    return job_results, details


def _federated(run: Run, client: str) -> int:
    """Return how many numbers a client sends in a round."""
    state = run.loop.federation[client].federated
    return sum(state[name].numel() for name in run.exchange.sharing.names[client])


def best_checkpoint(checkpoint: str, choose: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys that make a run keep its best checkpoint by the metric to choose by, if this
    checkpoint is scored.
    """
    if checkpoint != "best":
        return {}
    # Clients that chose by different metrics would have different best checkpoints.
    (metric,) = set(choose.values())
    mode = "max" if COMPARED[metric].higher_is_better else "min"
    return {"checkpoint.monitor": f"val/{metric}", "checkpoint.mode": mode, "checkpoint.best": 1}


Numbers = NDArray[np.float64]


def read_tested(table: PredictionTable) -> dict[str, Predictions]:
    """Map each client to its predictions for test rows, in ascending order of their numbers."""
    return {
        client: splits["test"].in_order()
        for client, splits in table.read_back().items()
        if "test" in splits
    }


def bootstrap_scores(tested: Mapping[str, Predictions], resamples: int) -> pd.DataFrame:
    """Return the scores of rows drawn with replacement, by the client's task: all scores except
    those that take too long.

    The draws are a function of the client's name, its number of rows and the resample: two models
    that are scored on the same rows are scored on the same draws, so that their difference can be
    taken draw by draw.

    Args:
        tested: maps each client to a model's predictions for its test rows.
        resamples: the number of draws.

    Returns:
        One row per draw; the columns are (client, metric).
    """
    columns: dict[tuple[str, str], Numbers] = {}
    for client, rows in tested.items():
        scorer = rows.task.scorer(rows.predictions, rows.y)
        weight = rows.weight
        drawn = _draws(client, len(rows.y), resamples)
        draws = [scorer(counts if weight is None else counts * weight) for counts in drawn]
        for score in rows.task.scores if draws else ():
            if score.name in draws[0] and not score.context:
                columns[client, score.name] = np.array([float(draw[score.name]) for draw in draws])
    return pd.DataFrame(
        columns, columns=pd.MultiIndex.from_tuples(list(columns), names=["client", "metric"])
    )


def _draws(client: str, rows: int, resamples: int) -> Iterator[Tensor]:
    for number in range(resamples):
        rng = np.random.default_rng(derive_seed(0, "bootstrap", client, rows, number))
        yield torch.from_numpy(np.bincount(rng.integers(0, rows, rows), minlength=rows))

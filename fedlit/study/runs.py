"""One run of a study: a method, or a go-alone model, with one seed, in a folder of its own that says when it is done.

<study>/runs/<method>/seed_<n>/DONE                  what was run, with which versions, how long: written last
                              /predictions.parquet   of validation and test rows
                              /scores.csv            split, client, metric, value
                              /bootstrap.parquet     test scores of resampled rows
                              /curves.csv            validation scores over epochs
                              /corrections.csv       what clients correct at the end, of methods that show it
                              /clusters.csv          who is together, round by round, of methods that tell clients apart
                              /pairs.csv             what they measured between clients, of methods that compare them
                              /version_0/            what every run of fedlit has: configuration, events

Of a tuned method each combination of settings has its own <study>/runs/<method>@<digest of the settings>/: where values
are added to a grid, or it is put in another order, what was trained before still counts. ``DONE`` has the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import yaml

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, FedlitError
from fedlit.study.study import METRICS

if TYPE_CHECKING:
    from fedlit.run.run import Run
    from fedlit.study.study import Study

__all__ = [
    "DONE",
    "Job",
    "digest_of",
    "each_variant",
    "execute",
    "finished",
    "plan_jobs",
    "score_rows",
    "spoken",
    "tidy",
    "variant_name",
    "versions",
]

DONE = "DONE"
PREDICTIONS, SCORES, BOOTSTRAP, CURVES = "predictions.parquet", "scores.csv", "bootstrap.parquet", "curves.csv"
# Keys that do not change what is computed, beyond rounding.
_FREE = ("name", "board.", "checkpoint.", "model.threads", "trainer.default_root_dir", "trainer.enable_progress_bar")


@dataclass(frozen=True)
class Job:
    """What a worker process is asked to run.

    Attributes:
        method: name of the method, or of the baseline.
        seed: the run's seed.
        folder: where it goes.
        digest: changes with whatever the run is computed from: a folder whose ``DONE`` has another one is no result.
        config: the configuration's file; for a baseline, of the reference, whose data it gets.
        arguments: changed keys, as command-line arguments.
        choose: the metric to choose by, on validation.
        checkpoint: which state is scored on the test split.
        bootstrap: resamples of the test rows.
        keep_checkpoints: whether they are kept.
        grid: a baseline's settings; None for a method.
        test: whether the test split is scored; a search must not look at it.
        settings: of a tuned method, the combination; None for any other.
    """

    method: str
    seed: int
    folder: str
    digest: str
    config: str
    arguments: list[str]
    choose: str
    checkpoint: Literal["last", "best"]
    bootstrap: int
    keep_checkpoints: bool
    grid: dict[str, list[Any]] | None = None
    test: bool = True
    settings: dict[str, Any] | None = None

    @property
    def variant(self) -> str:
        """The method, with which of its combinations."""
        return variant_name(self.method, self.settings)

    @property
    def name(self) -> str:
        """As it is spoken of."""
        return f"{spoken(self.method, self.settings)}, seed {self.seed}"


def variant_name(method: str, settings: Mapping[str, Any] | None) -> str:
    """The folder of a method's runs with a combination of settings: no two have the same. No method has an ``@``."""
    return f"{method}@{digest_of(settings)}" if settings else method


def spoken(method: str, settings: Mapping[str, Any] | None) -> str:
    """How a combination of a tuned method is called where people read it.

    Example:
        >>> spoken("gl", {"exchange.rate": 0.5}), spoken("gl", None)
        ('gl (exchange.rate=0.5)', 'gl')
    """
    own = ", ".join(f"{key}={json.dumps(value)}" for key, value in (settings or {}).items())
    return f"{method} ({own})" if own else method


def each_variant(study: Study) -> list[tuple[str, dict[str, Any]]]:
    """All methods with each of their combinations of settings; of a method that is not tuned that is none."""
    return [(name, tuned) for name, method in study.methods.items() for tuned in method.combinations]


def plan_jobs(study: Study, seeds: list[int], out: Path) -> list[Job]:
    """All runs of a study, seed by seed, so that a study that is cut short has all methods of its first seeds.

    Raises:
        ConfigError: a configuration is missing or not valid: refused before the first run.
    """
    from fedlit.run.load import load
    from fedlit.study.baselines import GRIDS

    jobs: dict[str, dict[str, Any]] = {}
    sources: dict[str, Any] = {}
    # Baselines get the data of the reference; where it is tuned, of its first combination: their rows are the same.
    reference = variant_name(study.reference, study.methods[study.reference].combinations[0])
    for name, tuned in each_variant(study):
        method, variant, title = study.methods[name], variant_name(name, tuned), spoken(name, tuned)
        config, arguments = str(study.config(name)), method.arguments(tuned)
        try:
            run = load(config, *arguments)
        except ConfigError as error:
            if not tuned:
                raise
            raise ConfigError(f"methods.{title}: {error}") from error
        settings = {key: value for key, value in (run.settings or {}).items() if key != "seed" and not _free(key)}
        sources[title] = {key: value for key, value in settings.items() if key.startswith("data.source")}
        exchanges = bool(settings.get("exchange.federated"))
        if not exchanges and not (name == study.reference or method.alone or method.pooled):
            raise ConfigError(
                f"methods.{title}: expected something in exchange.federated, found that nothing is shared; set alone: "
                "true (each client by itself) or pooled: true (all rows in one place)"
            )
        made_of = [settings, study.checkpoint, study.choose if study.checkpoint == "best" else ""]
        for own in jobs.values():
            if own["method"] == name and own["made_of"] == made_of:  # 1 and 1.0, or a key that changes no result
                raise ConfigError(
                    f"methods.{name}.tune: expected combinations that differ in what is trained, found "
                    f"{spoken(name, own['settings'])} and {title} alike; drop one"
                )
        jobs[variant] = {"method": name, "config": config, "arguments": arguments, "grid": None, "made_of": made_of}
        jobs[variant]["settings"] = tuned or None
        if variant == reference:
            tables = _fingerprint(run.data.source.tables(0))
            data = {key: value for key, value in settings.items() if key.startswith("data.")}
    expected = sources[spoken(study.reference, jobs[reference]["settings"])]
    for title, source in sources.items():
        different = [key for key in source if source[key] != expected.get(key)]
        if different:
            raise ConfigError(
                f"methods.{title}: expected the rows of {study.reference}, found another {', '.join(different)}; "
                "methods are compared on the same rows"
            )
    for name, grid in study.baselines.items():
        grid = GRIDS[name] if grid is None else grid
        made_of = [data, grid, study.choose]
        jobs[name] = {**jobs[reference], "method": name, "grid": grid, "settings": None, "made_of": made_of}
    common = {name: getattr(study, name) for name in ("choose", "checkpoint", "bootstrap", "keep_checkpoints")}
    return [
        Job(
            made["method"],
            seed,
            str(out / "runs" / variant / f"seed_{seed}"),
            digest_of([made["method"], seed, study.bootstrap, tables, *made["made_of"]]),
            made["config"],
            made["arguments"],
            grid=made["grid"],
            settings=made["settings"],
            **common,
        )
        for seed in seeds
        for variant, made in jobs.items()
    ]


def _free(key: str) -> bool:
    return key.startswith(_FREE)


def _fingerprint(tables: Sequence[ClientTable]) -> str:
    """Changes with any value, label or split: an answer must not outlive the data that it was computed from."""
    digest = hashlib.blake2b(digest_size=8)
    for table in tables:
        digest.update(repr((table.name, list(table.features), table.categorical, table.positive)).encode())
        for values in (table.features, table.target):
            digest.update(pd.util.hash_pandas_object(values).to_numpy().tobytes())
        for split, rows in sorted(table.splits.items()):
            digest.update(split.encode() + rows.tobytes())
    return digest.hexdigest()


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


def versions() -> dict[str, str]:
    """Of what computes the results."""
    names = ("fedlit", "torch", "lightning", "torchmetrics", "scikit-learn", "numpy", "pandas", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def execute(job: Job) -> None:
    """Run one job to the end, and mark its folder as done.

    A method's run that was cut short goes on from its last checkpoint, if it was of this configuration.
    """
    from fedlit.study.baselines import fit_baseline
    from fedlit.study.bootstrap import bootstrap_scores

    folder = Path(job.folder)
    begun = time.perf_counter()
    if job.grid is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        predictions, scores, details = fit_baseline(job)
        details["seconds"] = time.perf_counter() - begun
    else:
        predictions, scores, details = _train(job, folder)
    predictions.to_parquet(folder / PREDICTIONS, index=False)
    scores.to_csv(folder / SCORES, index=False)
    test = predictions[predictions["split"] == "test"]
    if job.bootstrap:
        bootstrap_scores(test, job.bootstrap).to_parquet(folder / BOOTSTRAP)
    record = {
        "digest": job.digest,
        "method": job.method,
        "seed": job.seed,
        **({"settings": job.settings} if job.settings is not None else {}),
        "rows": {str(client): _rows(own) for client, own in predictions.groupby("client")},
        "files": {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix in (".csv", ".parquet")},
        **details,
        "versions": versions(),
        "machine": machine(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    partial = folder / f"{DONE}.part"
    with partial.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / DONE)
    if not job.keep_checkpoints:
        for checkpoints in folder.glob("version_*/checkpoints"):
            shutil.rmtree(checkpoints)


def machine() -> dict[str, Any]:
    """What the run was computed on."""
    import torch

    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"system": platform.system(), "processor": model, "cores": os.cpu_count(), "gpus": gpus}


def _rows(predictions: pd.DataFrame) -> dict[str, Any]:
    """What tells whether two runs were scored on the same rows."""
    found: dict[str, Any] = {}
    for split, own in predictions.groupby("split"):
        rows = own.sort_values("row")
        labels = "\n".join(rows["target"].fillna(""))
        digest = hashlib.blake2b(rows["row"].to_numpy().tobytes() + labels.encode(), digest_size=8)
        found[str(split)] = {"digest": digest.hexdigest(), "rows": len(rows)}
    return found


def tidy(predictions: pd.DataFrame, client: str, split: str) -> pd.DataFrame:
    """A client's predictions on a split as rows of :data:`PREDICTIONS`; labels are text, for clients' types differ."""
    predictions.insert(0, "client", client)
    predictions.insert(1, "split", split)
    return predictions.astype({"target": "string", "predicted": "string"})


def score_rows(scores: Mapping[str, float], client: str, split: str) -> list[dict[str, Any]]:
    """A client's scores on a split as rows of :data:`SCORES`."""
    return [{"split": split, "client": client, "metric": metric, "value": value} for metric, value in scores.items()]


def _train(job: Job, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    from fedlit.explain.clusters import CLUSTERS, PAIRS
    from fedlit.explain.judge import CORRECTIONS
    from fedlit.run.explanation import read_corrections
    from fedlit.run.folders import newest_run
    from fedlit.run.load import load
    from fedlit.run.predictions import scored_predictions
    from fedlit.study.curves import read_curves, training_seconds

    best = [f"--checkpoint.monitor=val/{job.choose}", "--checkpoint.best=1"] if job.checkpoint == "best" else []
    run = load(
        job.config,
        *job.arguments,
        f"--seed={job.seed}",
        f"--name={folder.name}",
        f"--trainer.default_root_dir={folder.parent}",
        *best,
    )
    try:
        begun = newest_run(folder.parent, folder.name)
    except FedlitError:  # it ended before its first checkpoint
        begun = None
    if begun is None or not _same(begun, run, best):
        shutil.rmtree(folder, ignore_errors=True)
        begun = None
    trained = run.fit("last" if begun is not None else None, quiet=True)
    validation = run.validate("best", quiet=True) if job.checkpoint == "best" else trained
    splits = [validation, run.test(job.checkpoint, quiet=True)] if job.test else [validation]
    predictions, scores = [], []
    for results in splits:
        for client, frame in scored_predictions(run.loop, run.data, results.split).items():
            predictions.append(tidy(frame, client, results.split))
        for client, own in results.scores.items():
            known = {metric: own[metric] for metric in own if metric in METRICS or metric in ("loss", "classes")}
            scores += score_rows(known, client, results.split)
    assert run.folder is not None
    curves = read_curves(run.folder, list(splits[-1].scores))
    curves.to_csv(folder / CURVES, index=False)
    if (run.folder / CORRECTIONS).is_file():
        read_corrections(run.folder)[0].to_csv(folder / CORRECTIONS, index=False)
    for name in (CLUSTERS, PAIRS):
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)
    train_rows = {site.name: site.rows["train"] for spec in run.data.specs for site in spec.sites}
    exchange = run.exchange
    details = {
        "seconds": training_seconds(curves),
        "exchange": {"rounds": exchange.rounds, "bytes": exchange.bytes, "seconds": exchange.seconds},
        "resumed": begun is not None,
        "train_rows": train_rows,
    }
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), details


def _same(folder: Path, run: Run, best: Sequence[str]) -> bool:
    """Whether a run that was begun is of this configuration, and kept the checkpoints that are asked for."""
    from fedlit.run.config import flatten

    saved = folder / "config.yaml"
    before = dict(flatten(yaml.safe_load(saved.read_text(encoding="utf-8")))) if saved.is_file() else {}

    def relevant(settings: Mapping[str, Any]) -> dict[str, Any]:
        chosen = ("checkpoint.",) if best else ()
        return {key: value for key, value in settings.items() if not _free(key) or key.startswith(chosen)}

    return relevant(before) == relevant(run.settings or {})

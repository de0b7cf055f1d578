"""Fits the local baselines of a mixture's part, and writes them as arrays, from which new rows are
predicted.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import EncodedClient
from fedlit.errors import RunError, Told, expect
from fedlit.files import write_text
from fedlit.jobs.alone import Fold, fit_alone, maker
from fedlit.jobs.record import Output
from fedlit.mixture.parts import HeldOut, Part
from fedlit.score.arrays import ArrayFunction
from fedlit.score.as_arrays import as_arrays
from fedlit.score.folder import write
from fedlit.score.scorer import Scorer
from fedlit.tasks import COMPARED, task_state
from fedlit.tasks.go_alone import GoAlone

_BATCH = 65_536  # rows at a time through a model: trees are as fast as there are many


def fit_part(part: Part, digest: str, seconds: float = math.inf) -> Output:
    """Fit a part's models of all folds and clients; the settings of a client's are the same in all
    folds. Clients that were fitted before are not fitted again.

    Args:
        part: the part, which is a local baseline. If a client's task has no score of the name
            ``part.by``, its main one chooses the settings.
        digest: the digest of the part's job.
        seconds: for all clients, in equal shares: a client whose time is up gets the best of the
            settings tried.

    Raises:
        RunError: no client's task has such a model.
    """
    clients = part.clients_alone
    names = ", ".join(part.load(0).data.specs[0].task.go_alone)
    expected = f"a client whose task has {part.settings.go_alone}"
    do = f"name one of {names}" if names else "this task has no local baselines: leave the part out"
    expect(bool(clients), f"part {part.name!r}", expected, Told("none"), do, RunError)
    end = time.monotonic() + seconds
    whole = True
    before = 0.0
    values = dict[str, list[float]]()
    for position, name in enumerate(clients):
        share = (end - time.monotonic()) / (len(clients) - position)
        fitted = fit_client(part, name, digest, share)
        whole &= fitted["whole"]
        before += fitted["seconds"]
        values.setdefault(fitted["score"], []).append(fitted["value"])
    files = list[Path]()
    for fold in part.each_fold:
        for path in part.fold(fold).iterdir():
            if path.name not in clients:  # of another configuration
                shutil.rmtree(path)
        files += [path for path in part.fold(fold).rglob("*") if path.is_file()]
    details: dict[str, Any] = {"whole": whole}
    if len(values) == 1:  # scores of several names have no mean
        ((score, of_clients),) = values.items()
        details["held_out"] = asdict(HeldOut(score, float(np.nanmean(of_clients))))
    return Output(files, details, seconds=before)


def fit_client(part: Part, name: str, digest: str, seconds: float = math.inf) -> dict[str, Any]:
    """Fit one client's models of all folds, unless this was done before.

    Args:
        part: the part, which is a local baseline.
        name: the client.
        digest: the digest of the part's job.
        seconds: the time after which only the best of the settings tried counts.

    Returns:
        Whether all settings were tried, as ``whole``; the ``seconds`` that it took before; and the
        ``value`` of the ``score`` on held-out rows.
    """
    record = part.folder / "fitted" / f"{name}.json"
    # It may be missing, or cut short by more than a killed process.
    with suppress(OSError, ValueError, LookupError):
        fitted = json.loads(record.read_text(encoding="utf-8"))
        if fitted["digest"] == digest:
            return {
                "whole": bool(fitted["whole"]),
                "seconds": float(fitted["seconds"]),
                "score": str(fitted["score"]),
                "value": float(fitted["value"]),
            }
    begun = time.monotonic()
    data = [part.load(fold).data for fold in part.each_fold]
    for fold, fold_data in enumerate(data):
        shutil.rmtree(part.fold(fold) / name, ignore_errors=True)
        fold_data.setup()
    names = [spec.name for spec in data[0].specs]
    position = names.index(name)
    clients = [fold_data.clients[position] for fold_data in data]
    encoders = [fold_data.encoders[name] for fold_data in data]
    model = clients[0].spec.task.go_alone[str(part.settings.go_alone)]
    about = _write(part, model, clients, encoders, begun + seconds)
    record.parent.mkdir(parents=True, exist_ok=True)
    took = time.monotonic() - begun
    write_text(json.dumps({"digest": digest, **about, "seconds": took}), record)
    return {**about, "seconds": 0.0}


def _write(
    part: Part,
    model: GoAlone,
    clients: Sequence[EncodedClient],
    encoders: Sequence[TableEncoder],
    until: float,
) -> dict[str, Any]:
    """Fit and write one client's models. Return whether all settings were tried, and the score of
    held-out rows.
    """
    task = clients[0].spec.task
    name = clients[0].spec.name
    score = task.scores[0]
    if part.by in COMPARED and part.by in {candidate.name for candidate in task.scores}:
        score = COMPARED[str(part.by)]
    folds = [
        Fold(
            client.spec.task,
            maker(model, client, part.seed),
            client.train,
            client.sites[name]["validation"],
        )
        for client in clients
    ]
    fitted, whole = fit_alone(folds, part.settings.grid or model.grid, score, until)
    for fold, (client, encoder, trained) in enumerate(
        zip(clients, encoders, fitted.models, strict=True)
    ):
        spec = client.spec
        about = {
            "client": str(part.settings.go_alone), "settings": fitted.settings, "rows": dict(spec.rows), "epochs": 0,
            "checkpoint": part.name, "version": None, "precision": "32-true",
        }  # fmt: skip
        outcome = spec.task.outcome
        arrays = as_arrays(trained, outcome.times)
        function = ArrayFunction(*arrays, outcome, spec.num_features)
        state = task_state(spec.task)
        classes = spec.sites[0].classes
        write(
            part.fold(fold) / name,
            Scorer(name, encoder, function, state, classes=classes, batch=_BATCH, about=about),
        )
    return {"whole": whole, "score": score.name, "value": fitted.value}

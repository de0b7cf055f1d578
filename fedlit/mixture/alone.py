"""Fits the local baselines of a mixture's part, and writes them as arrays, from which new rows are
predicted.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import EncodedClient
from fedlit.errors import RunError, Told, expect
from fedlit.jobs.alone import Fold, fit_alone, maker
from fedlit.jobs.record import Output
from fedlit.mixture.parts import Part
from fedlit.score.arrays import ArrayFunction
from fedlit.score.as_arrays import as_arrays
from fedlit.score.folder import write
from fedlit.score.scorer import Scorer
from fedlit.tasks import COMPARED, task_state
from fedlit.tasks.go_alone import GoAlone

_BATCH = 65_536  # rows at a time through a model: trees are as fast as there are many


def fit_part(part: Part, seconds: float = math.inf) -> Output:
    """Fit a part's models of all folds and clients; the settings of a client's are the same in all
    folds.

    Args:
        part: the part, which is a local baseline. If a client's task has no score of the name
            ``part.by``, its main one chooses the settings.
        seconds: for all clients, in equal shares: a client whose time is up gets the best of the
            settings tried.

    Raises:
        RunError: no client's task has such a model.
    """
    data = [part.load(fold).data for fold in part.each_fold]
    for fold, fold_data in enumerate(data):
        shutil.rmtree(part.fold(fold), ignore_errors=True)
        fold_data.setup()
    models = {
        client.spec.name: client.spec.task.go_alone.get(str(part.settings.go_alone))
        for client in data[0].clients
    }
    names = ", ".join(data[0].specs[0].task.go_alone)
    expected = f"a client whose task has {part.settings.go_alone}"
    do = f"name one of {names}" if names else "this task has no local baselines: leave the part out"
    expect(any(models.values()), f"part {part.name!r}", expected, Told("none"), do, RunError)
    end = time.monotonic() + seconds
    whole = True
    for position, (name, model) in enumerate(models.items()):
        if model is None:
            continue
        now = time.monotonic()
        encoders = [fold_data.encoders[name] for fold_data in data]
        until = now + (end - now) / (len(models) - position)
        whole &= _write(
            part, model, [fold_data.clients[position] for fold_data in data], encoders, until
        )
    files = list[Path]()
    for fold in part.each_fold:
        files += [path for path in part.fold(fold).rglob("*") if path.is_file()]
    return Output(files, {"whole": whole})


def _write(
    part: Part,
    model: GoAlone,
    clients: Sequence[EncodedClient],
    encoders: Sequence[TableEncoder],
    until: float,
) -> bool:
    """Fit and write one client's models. Return whether all settings were tried."""
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
        function = ArrayFunction(*as_arrays(trained), spec.task.outcome, spec.num_features)
        state = task_state(spec.task)
        classes = spec.sites[0].classes
        write(
            part.fold(fold) / name,
            Scorer(name, encoder, function, state, classes=classes, batch=_BATCH, about=about),
        )
    return whole

"""Event files read back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import alike, make_run
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.backend.event_processing.plugin_event_multiplexer import (
    EventMultiplexer as PluginEventMultiplexer,
)
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, get_experiment, list_session_groups
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.util import tensor_util

from fedlit.train.logger import HPARAMS, BoardSettings

pytestmark = pytest.mark.usefixtures("pictures")


def read(folder: Path) -> EventMultiplexer:
    board = EventMultiplexer(size_guidance={"scalars": 0, "images": 0, "tensors": 0}).AddRunsFromDirectory(str(folder))
    return board.Reload()


def series(board: EventMultiplexer, run: str, tag: str) -> dict[int, float]:
    # files of one second are read in the order of their names, of which the tenth comes before the second
    return {event.step: event.value for event in sorted(board.Scalars(run, tag), key=lambda event: event.step)}


@pytest.fixture(scope="module")
def trained(pictures: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("board")
    settings = {"data.batches": 4, "name": "made"}
    board = BoardSettings(corrections=0)
    run = make_run(folder, epochs=3, exchange={"federated": ["core"]}, settings=settings, board=board)
    run.fit(quiet=True)
    return run, read(folder)


RUN = "fedlit/version_0"


def test_one_run_per_client_with_equal_tags_and_one_for_the_federation(trained: Any) -> None:
    _run, board = trained
    runs = board.Runs()
    clients = ["ash", "birch", "cedar"]
    assert set(runs) == {f"{RUN}/{name}" for name in [*clients, "federation", HPARAMS]}
    tags = [{*runs[f"{RUN}/{name}"]["scalars"], *runs[f"{RUN}/{name}"]["images"]} for name in clients]
    assert tags[0] == tags[1] == tags[2]
    metrics = {"loss", "auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "weighted_f1"}
    pictures = {"val/confusion_matrix", "val/curves"}
    assert tags[0] == {f"val/{metric}" for metric in metrics} | {"train/loss", "train/lr", "train/drift"} | pictures
    federation = {*runs[f"{RUN}/federation"]["scalars"], *runs[f"{RUN}/federation"]["tensors"]}
    shared = {"val/auroc", "val/worst/auroc", "train/loss", "train/drift", "plan/text_summary", "exchange/rounds"}
    assert shared <= federation and not any(tag.endswith("/classes") for tag in federation)


def test_values_and_steps(trained: Any) -> None:
    run, board = trained
    auroc = {name: series(board, f"{RUN}/{name}", "val/auroc") for name in ("ash", "birch", "cedar")}
    assert all(list(values) == [4, 8, 12] for values in auroc.values())  # aligned steps at the end of each epoch
    for name, values in auroc.items():
        assert values[12] == pytest.approx(run.loop.results["validation"].scores[name]["auroc"])
    federation = f"{RUN}/federation"
    for step, mean in series(board, federation, "val/auroc").items():
        assert mean == pytest.approx(np.mean([values[step] for values in auroc.values()]))
        assert series(board, federation, "val/worst/auroc")[step] == pytest.approx(min(v[step] for v in auroc.values()))
    drift = {name: series(board, f"{RUN}/{name}", "train/drift") for name in auroc}
    assert all(value > 0 for values in drift.values() for value in values.values())
    mean = np.mean([values[12] for values in drift.values()])
    assert series(board, federation, "train/drift")[12] == pytest.approx(mean)


def test_plan_as_text_and_confusion_matrices_as_images(trained: Any) -> None:
    _run, board = trained
    text = tensor_util.make_ndarray(board.Tensors(f"{RUN}/federation", "plan/text_summary")[0].tensor_proto)
    assert b"| ash |" in text.ravel()[0] and b"`core.0.weight`" in text.ravel()[0]
    (image,) = board.Images(f"{RUN}/ash", "val/confusion_matrix")
    assert image.encoded_image_string.startswith(b"\x89PNG") and image.width > 100 and image.height > 100


def compared(folder: Path) -> list[tuple[str, dict[str, Any], dict[str, float]]]:
    """(run, hyperparameters, metrics) as TensorBoard's HParams tab lists them."""
    board = PluginEventMultiplexer(purge_orphaned_data=True).AddRunsFromDirectory(str(folder)).Reload()
    context = base_plugin.TBContext(data_provider=MultiplexerDataProvider(board, str(folder)))
    own, request = Context(context), RequestContext()
    experiment = get_experiment.Handler(request, own, "", api_pb2.GetExperimentRequest(include_metrics=True)).run()
    columns = [api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos]
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=100,
        col_params=columns,
        allowed_statuses=[api_pb2.STATUS_SUCCESS],
        include_metrics=True,
    )
    groups = list_session_groups.Handler(request, own, "", asked).run().session_groups
    return [
        (
            group.sessions[0].name,
            {key: value.string_value or value.number_value for key, value in group.hparams.items()},
            {value.name.tag: value.value for value in group.metric_values},
        )
        for group in groups
    ]


def test_runs_are_compared_by_the_last_and_the_best_mean_score(trained: Any) -> None:
    run, board = trained
    ((name, hparams, metrics),) = compared(run.root)
    means = series(board, f"{RUN}/federation", "val/auroc")
    assert (name, hparams) == (f"{RUN}/{HPARAMS}", {"data.batches": 4, "name": "made"})
    assert metrics == {"val/auroc": pytest.approx(means[12]), "val/best/auroc": pytest.approx(max(means.values()))}
    best = series(board, f"{RUN}/federation", "val/best/auroc")
    assert list(best.values()) == pytest.approx(np.maximum.accumulate(list(means.values())))


def test_seconds_of_an_epoch_and_of_its_validation(trained: Any) -> None:
    _, board = trained
    for tag in ("seconds/train", "seconds/val"):
        seconds = series(board, f"{RUN}/federation", tag)
        assert list(seconds) == [4, 8, 12] and all(0 < value < 60 for value in seconds.values())


def test_curves_of_the_last_validation(trained: Any) -> None:
    run, board = trained
    (image,) = board.Images(f"{RUN}/ash", "val/curves")
    assert image.encoded_image_string.startswith(b"\x89PNG") and image.width > 2 * image.height
    metrics = run.loop.federation.evaluations.scoring["validation"].metrics["birch"]  # two classes
    ((label, (positive, probability)),) = metrics.ranked().items()
    found = tensor_util.make_ndarray(board.Tensors(f"{RUN}/birch", "val/pr")[0].tensor_proto)
    hits, false = found[0], found[1]  # of rows above each of 127 thresholds
    assert label == "1" and hits[0] == positive.sum() and false[0] == (~positive).sum()
    assert hits[63] == (positive & (probability >= 0.5)).sum()
    ranked = run.loop.federation.evaluations.scoring["validation"].metrics["ash"].ranked()  # three: one card, too
    found = tensor_util.make_ndarray(board.Tensors(f"{RUN}/ash", "val/pr")[0].tensor_proto)
    assert len(ranked) == 3 and found[0][0] == sum(own.sum() for own, _ in ranked.values())


def test_a_resumed_run_continues_the_same_curves(tmp_path: Path) -> None:
    make_run(tmp_path, epochs=2).fit(quiet=True)
    make_run(tmp_path, epochs=4).fit("last", quiet=True)
    board = read(tmp_path)
    means, best = (series(board, f"{RUN}/federation", f"val/{tag}") for tag in ("auroc", "best/auroc"))
    assert list(best.values()) == pytest.approx(np.maximum.accumulate(list(means.values())))
    assert list(series(board, f"{RUN}/ash", "val/loss")) == [4, 8, 12, 16]
    assert len(board.Runs()) == 4


def test_a_test_draws_its_confusion_matrices_and_logs_its_scores(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, board=BoardSettings(confusion_matrices=2, curves=False))
    run.fit(quiet=True)
    results = run.test(quiet=True)
    board = read(tmp_path)
    assert series(board, f"{RUN}/cedar", "test/auroc")[4] == pytest.approx(results.scores["cedar"]["auroc"])
    drawn = {name: board.Runs()[f"{RUN}/{name}"]["images"] for name in ("ash", "birch", "cedar")}
    assert "test/confusion_matrix" in drawn["birch"] and drawn["cedar"] == []  # of as many clients as the board says


def test_pooled_rows_are_shown_per_former_client(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, align="both", pool=True)
    run.fit(quiet=True)
    runs = read(tmp_path).Runs()
    shown = {name.rsplit("/", 1)[1] for name, tags in runs.items() if "val/auroc" in tags["scalars"]}
    assert shown == {"ash", "birch", "cedar", "all", "federation"}


def test_of_many_clients_only_the_worst_and_the_chosen_have_runs(tmp_path: Path) -> None:
    run = alike(
        tmp_path,
        exchange={"federated": ["core"]},
        board=BoardSettings(clients=3, chosen=["site5"], confusion_matrices=0, curves=False),
    )
    results = run.fit(quiet=True)
    board = read(tmp_path)
    shown = {Path(name).name for name in board.Runs()} - {"federation"}
    assert "site5" in shown and len(shown) <= 3 + 1 < 7
    assert set(results.summary["worst_client"].values()) & shown
    federation = f"{RUN}/federation"
    values = [scores["auroc"] for scores in results.scores.values()]
    for percent in (10, 50, 90):
        assert series(board, federation, f"val/auroc/p{percent}")[12] == pytest.approx(np.percentile(values, percent))
    everyone = alike(tmp_path / "all", board=BoardSettings(clients=7, confusion_matrices=0, curves=False))
    everyone.fit(quiet=True)
    assert {Path(name).name for name in read(tmp_path / "all").Runs()} == {"federation", *results.scores}
    assert "val/auroc/p10" not in read(tmp_path / "all").Runs()[federation]["scalars"]

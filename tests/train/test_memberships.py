"""Who belongs together, as a run writes it: files, pictures, and after an interruption."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import CLUSTERED, different, make_run, weights
from lightning.pytorch import Callback, Trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedlit.__main__ import main
from fedlit.client.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.data.shaping.concept import ConceptShift
from fedlit.data.shaping.dealing import Iid
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import CFL, IFCA, FedGMCC
from fedlit.explain import PATHS
from fedlit.explain.clusters import adjusted_rand, concepts_of, judged
from fedlit.files import read_named
from fedlit.methods import CHFL
from fedlit.nn import MLP, GlobalLayers
from fedlit.run.explanation import explain_paths
from fedlit.run.run import Run
from fedlit.train.callbacks import Checkpoints
from fedlit.train.loop import FederatedLoop


class StopIn(Callback):
    """Kills a run within an epoch, after its checkpoint."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["fedgmcc", "cfl"])
def test_a_resumed_run_writes_what_the_whole_one_writes(method: str, tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", **CLUSTERED[method])
    whole.fit(quiet=True)
    stopped = make_run(tmp_path / "part", callbacks=[StopIn(10)], **CLUSTERED[method])
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        stopped.fit(quiet=True)
    resumed = make_run(tmp_path / "part", **CLUSTERED[method])
    resumed.fit("last", quiet=True)
    assert whole.folder is not None and resumed.folder is not None
    for name in ("clusters.csv", "pairs.csv"):
        assert (resumed.folder / name).read_text() == (whole.folder / name).read_text()
    found, pairs = read_named(whole.folder / "clusters.csv"), read_named(whole.folder / "pairs.csv")
    rounds = whole.exchange.rounds
    assert len(found) == 3 * rounds and set(found["round"]) == set(range(1, rounds + 1))
    assert len(pairs) == 3 * rounds and list(pairs["first"][:3] + pairs["second"][:3]) == [
        "ashbirch", "ashcedar", "birchcedar",
    ]  # fmt: skip
    assert resumed.exchange.bytes == whole.exchange.bytes > 0 and whole.exchange.seconds > 0
    assert different(weights(whole), weights(resumed)) == []


@pytest.mark.parametrize("method", CLUSTERED)
def test_clients_that_are_not_drawn_or_not_finite_stay_with_their_cluster(method: str, tmp_path: Path) -> None:
    class Broken(FederatedClient):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            late = self.spec.name == "birch" and self.trainer.global_step == 9
            return loss * float("nan") if late else loss

    drawn = {**CLUSTERED[method], "exchange": {**CLUSTERED[method]["exchange"], "participation": 0.4}}
    runs = [make_run(tmp_path / str(number), client=Broken, epochs=6, **drawn) for number in range(2)]
    for run in runs:
        run.fit(quiet=True)
        assert all(torch.isfinite(value).all() for value in weights(run).values() if value.is_floating_point())
    assert different(weights(runs[0]), weights(runs[1])) == []
    assert runs[0].folder is not None
    found = read_named(runs[0].folder / "clusters.csv")
    last = found[found["round"] == found["round"].max()]
    assert not last["client"].duplicated().any() and len(last) >= 2


def federation(folder: Path, rule: Any, concepts: int, epochs: int) -> Run:
    """Six alike clients of digits, half of which mean other digits by their labels."""
    source = ConceptShift(Partition(Bundled(clients=["digits"]), clients=6, deal=Iid()), concepts=concepts)
    data = FederatedData(source, batches=5, steps=20, align="classes", seed=1)
    client = partial(FederatedClient, network=partial(MLP, hidden=[32], activation="relu"))
    loop = FederatedLoop(client, optimizer=partial(torch.optim.SGD, lr=0.2), threads=1, seed=1)

    exchange = Exchange(["*"], rule=rule)
    return Run(loop, data, exchange, root=folder, checkpoints=Checkpoints(best=0), max_epochs=epochs)


def test_planted_concepts_are_found_and_everything_is_told(tmp_path: Path) -> None:
    run = federation(
        tmp_path,
        FedGMCC(samples=32, steps=5, grid=4, outputs="raw", lr=0.001, epsilon="barriers"),
        concepts=2,
        epochs=12,
    )
    run.fit(quiet=True)
    assert run.folder is not None
    found = read_named(run.folder / "clusters.csv")
    assert adjusted_rand(judged(found), concepts_of(found)) == 1.0
    assert concepts_of(found) == {spec.name: spec.concept for spec in run.data.specs}
    pairs = read_named(run.folder / "pairs.csv")
    last = pairs[pairs["round"] == 12]
    concept = concepts_of(found)
    within = last["first"].map(concept) == last["second"].map(concept)
    assert last.loc[within, "value"].max() < last.loc[~within, "value"].min()
    board = EventAccumulator(str(run.folder / "federation"), size_guidance={"images": 0, "scalars": 0}).Reload()
    assert {"clusters/membership", "clusters/pairs"} <= set(board.Tags()["images"])
    shown = {tag: [event.value for event in board.Scalars(f"exchange/{tag}")] for tag in ("clusters", "percentile")}
    assert shown["clusters"] == [float(n) for n in found.groupby("round")["cluster"].nunique()]
    assert shown["percentile"][0] == 50 and len(set(shown["percentile"])) > 1
    # what travels: parameters up and down, nothing else is asked
    one = sum(value.numel() * 4 for value in run.loop.federation["c01"].federated.values())
    assert run.exchange.bytes == 12 * 6 * 2 * one


def test_the_plan_says_what_the_rule_asks_and_counts_it(tmp_path: Path) -> None:
    run = federation(tmp_path, IFCA(3), concepts=1, epochs=2)
    assert "The rule asks each client for its mean training loss under each of 3 models." in str(run.describe())
    run.fit(quiet=True)
    one = sum(value.numel() * 4 for value in run.loop.federation["c01"].federated.values())
    # two rounds, and the beginning; the model that a client gets is one of the three
    assert run.exchange.bytes == 3 * 6 * (one + 3 * (one + 4))
    ranged = federation(tmp_path, FedGMCC(inputs="range", outputs="raw"), concepts=1, epochs=2)
    assert "asks each client for least and largest value" in str(ranged.describe())


def test_a_method_whose_federated_part_is_no_function_is_refused(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        loop={"client": partial(CHFL, hidden=[8, 6])},
        data={"common": "all", "scaling": "pooled"},
        exchange={"federated": ["common", "!common.*.head"], "rule": FedGMCC(outputs="raw")},
    )
    with pytest.raises(ConfigError, match="within encoder, core and head, found common"):
        run.describe()


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ({"rule": FedGMCC(outputs="probabilities")}, r"expected the head in exchange\.federated"),
        ({"rule": CFL(), "rate": 0.5}, r"exchange\.rate: expected 1, found 0\.5; CFL"),
        ({"rule": IFCA(), "federated": ["core", "deep"]}, "found deep.bias at cedar and not at ash"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_training(
    exchange: dict[str, Any], message: str, tmp_path: Path
) -> None:
    class Deep(FederatedClient):
        def __init__(self, spec: Any, network: Any) -> None:
            super().__init__(spec, network)
            if spec.name == "cedar":
                self.deep = torch.nn.Linear(2, 2)

    with pytest.raises(ConfigError, match=message):
        make_run(tmp_path, client=Deep, exchange={"federated": ["core"], **exchange}).describe()


def test_global_layers_are_compared_by_their_core(tmp_path: Path) -> None:

    network = partial(GlobalLayers, global_features=1, blocks=1, heads=2)
    run = make_run(
        tmp_path,
        loop={"client": partial(FederatedClient, network=network)},
        exchange={
            "federated": ["core"],
            "rule": FedGMCC(16, 2, grid=2, inputs="range", outputs="raw", epsilon="barriers"),
        },
        epochs=2,
    )
    run.fit(quiet=True)
    assert run.folder is not None
    pairs = read_named(run.folder / "pairs.csv")
    assert len(pairs) == 6 and np.isfinite(pairs["value"]).all() and (pairs["value"] > 0).all()


def test_the_loss_along_paths_between_clients_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = federation(tmp_path, FedGMCC(32, 5, grid=4, epsilon="barriers"), concepts=2, epochs=2)
    run.fit(quiet=True)
    assert run.folder is not None
    written = pd.read_csv(run.folder / PATHS)
    assert len(written) == 15 * 2 * 4 and set(written["round"]) == {2}  # six clients, of the last exchange alone
    wide = written.pivot_table(index=["first", "second"], columns=["path", "u"], values="loss")
    assert (wide["bent"].mean(axis=1) <= wide["straight"].mean(axis=1) + 1e-9).all()
    assert main(["explain", "--run", str(run.folder)]) == 0
    found = explain_paths(run.folder)
    assert all(path.stat().st_size > 1000 for path in found.files)
    np.testing.assert_allclose(found.table["bent"], wide["bent"].mean(axis=0))

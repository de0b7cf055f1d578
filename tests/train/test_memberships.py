"""Who belongs together, as a run writes it: files, pictures, and after an interruption."""

from functools import partial
from pathlib import Path

import pytest
import torch
from contracts import one_in
from federations import CLUSTERED, Explodes, StopAfter, different, make_run, trained, weights
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedlit import MLP, FedGMCC
from fedlit.client.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.data.shaping.derived import ConceptShift
from fedlit.data.shaping.partition import Iid, Partition
from fedlit.data.sources import Bundled
from fedlit.exchange.exchange import Exchange
from fedlit.explain.clusters import adjusted_rand, concepts_of, judged
from fedlit.files import read_named
from fedlit.run.run import Run
from fedlit.train.callbacks import Checkpoints
from fedlit.train.loop import FederatedLoop


def test_a_resumed_run_writes_what_the_whole_one_writes(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", **CLUSTERED["fedgmcc"])
    stop = StopAfter(10, Path("checkpoints", "last.ckpt"))
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part", callbacks=[stop], **CLUSTERED["fedgmcc"])
    resumed = make_run(tmp_path / "part", **CLUSTERED["fedgmcc"])
    resumed.fit("last", quiet=True)
    assert whole.folder is not None and resumed.folder is not None
    for name in ("clusters.csv", "pairs.csv"):
        assert (resumed.folder / name).read_text() == (whole.folder / name).read_text()
    found, pairs = (read_named(whole.folder / f"{name}.csv") for name in ("clusters", "pairs"))
    assert len(found) == len(pairs) == 3 * whole.exchange.rounds
    assert different(weights(whole), weights(resumed)) == []


@pytest.mark.parametrize("method", one_in(2, CLUSTERED))
def test_clients_that_are_not_drawn_or_not_finite_stay_with_their_cluster(method: str, tmp_path: Path) -> None:
    drawn = {**CLUSTERED[method], "exchange": {**CLUSTERED[method]["exchange"], "participation": 0.4}}
    run = trained(tmp_path, client=type("Late", (Explodes,), {"at": 9}), epochs=6, **drawn)
    assert all(torch.isfinite(value).all() for value in weights(run).values() if value.is_floating_point())
    assert run.folder is not None
    found = read_named(run.folder / "clusters.csv")
    last = found[found["round"] == found["round"].max()]
    assert not last["client"].duplicated().any() and len(last) >= 2


def test_planted_concepts_are_found_and_everything_is_told(tmp_path: Path) -> None:
    """Six alike clients of digits, half of which mean other digits by their labels."""
    source = ConceptShift(Partition(Bundled(clients=["digits"]), clients=6, deal=Iid()), concepts=2)
    data = FederatedData(source, batches=5, steps=20, align="classes", seed=1)
    client = partial(FederatedClient, network=partial(MLP, hidden=[32], activation="relu"))
    loop = FederatedLoop(client, optimizer=partial(torch.optim.SGD, lr=0.2), threads=1, seed=1)
    rule = FedGMCC(samples=32, steps=5, grid=4, outputs="raw", lr=0.001, epsilon="barriers")
    run = Run(loop, data, Exchange(["*"], rule=rule), root=tmp_path, checkpoints=Checkpoints(best=0), max_epochs=12)
    run.fit(quiet=True)
    assert run.folder is not None
    found = read_named(run.folder / "clusters.csv")
    assert adjusted_rand(judged(found), concepts_of(found)) == 1.0
    assert concepts_of(found) == {spec.name: spec.concept for spec in run.data.specs}
    pairs = read_named(run.folder / "pairs.csv")
    last, concept = pairs[pairs["round"] == 12], concepts_of(found)
    within = last["first"].map(concept) == last["second"].map(concept)
    assert last.loc[within, "value"].max() < last.loc[~within, "value"].min()
    board = EventAccumulator(str(run.folder / "federation"), size_guidance={"images": 0, "scalars": 0}).Reload()
    assert {"clusters/membership"} <= set(board.Tags()["images"])
    shown = {tag: [event.value for event in board.Scalars(f"exchange/{tag}")] for tag in ("clusters", "percentile")}
    assert shown["clusters"] == [float(n) for n in found.groupby("round")["cluster"].nunique()]
    assert shown["percentile"][0] == 50 and len(set(shown["percentile"])) > 1

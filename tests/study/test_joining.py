"""A client that joins a run that has been trained: what it takes, what it leaves alone, what it
gains."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.run.allowed import trusting
from fedlit.run.joining import prepare
from fedlit.run.load import load
from fedlit.study.joining import Joined, add_client
from fedlit.train import checkpoint_file


def made(*clients: str) -> dict[str, Any]:
    return {
        "data": {
            "source": {"class_path": "federations.Made", "init_args": {"clients": list(clients)}}
        }
    }


CEDAR = made("cedar")
NETWORK = {"network": {"class_path": "federations.SmallNet"}}
SMALL: dict[str, Any] = {
    "seed": 1,
    "data": {**made("ash", "birch")["data"], "batches": 3},
    "model": {
        "client": {"class_path": "fedlit.FederatedClient", "init_args": NETWORK},
        "optimizer": {
            "class_path": "torch.optim.AdamW",
            "init_args": {"lr": 0.01, "weight_decay": 0.1},
        },
        "gradient_clip_val": 1.0,
        "threads": 1,
    },
    "exchange": {"federated": ["core"], "buffers": "average"},
    "board": {"pictures": 0},
    "trainer": {"max_epochs": 2, "enable_progress_bar": False},
}


@pytest.fixture(scope="module", autouse=True)
def own_classes() -> Iterator[None]:
    """The runs here name classes of the tests' own."""
    with trusting("federations"):
        yield


def write(name: str, content: Any) -> Path:
    Path(name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return Path(name)


def tensors(run: Path, client: str) -> dict[str, Tensor]:
    state = checkpoint_file.load(run / "checkpoints" / "last.ckpt")["state_dict"]
    prefix = f"clients.{client}."
    return {
        name.removeprefix(prefix): own for name, own in state.items() if name.startswith(prefix)
    }


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joining")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        load(str(write("mine.yaml", SMALL))).fit(quiet=True)
    return folder


@pytest.fixture(autouse=True)
def inside(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(here)
    return here / "lightning_logs" / "mine" / "version_0"


@pytest.fixture(scope="module")
def joined(here: Path) -> Joined:
    run = here / "lightning_logs" / "mine"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        before = digests(run)
        found = add_client(
            "mine",
            write("cedar.yaml", CEDAR),
            baselines=["logistic_regression"],
            bootstrap=40,
            quiet=True,
        )
        assert digests(run) == before  # other runs are left alone
        return found


def test_the_core_stays_bit_by_bit_and_private_parts_are_trained(
    joined: Joined, inside: Path
) -> None:
    theirs = tensors(inside, "ash")
    own = tensors(joined.folder, "cedar")
    fresh = prepare("mine", CEDAR).alone()
    fresh.describe()
    drawn = fresh.loop.federation["cedar"].state_dict()
    core = [
        name
        for name in own
        if name.startswith("core.") and not name.endswith("num_batches_tracked")
    ]
    # two of the linear layer, four of the normalisation, of which two are statistics
    assert len(core) == 6
    assert all(torch.equal(own[name], theirs[name]) for name in core)
    assert all(torch.equal(theirs[name], tensors(inside, "birch")[name]) for name in core)
    assert not any(
        torch.equal(own[name], drawn[name]) for name in core if not name.endswith("bias")
    )
    private = [name for name in own if not name.startswith("core.") and "bias" not in name]
    assert len(private) > 4 and not any(torch.equal(own[name], drawn[name]) for name in private)


def test_alone_is_the_same_configuration_without_exchange(joined: Joined) -> None:
    content = {**SMALL, "data": {**SMALL["data"], **CEDAR["data"]}, "exchange": {"federated": []}}
    run = load(str(write("by_hand.yaml", content)))
    run.fit(quiet=True)
    expected = run.test(quiet=True).scores["cedar"]
    own = joined.comparison.estimates.set_index(["metric", "method", "client"])["mean"]
    for metric in ("auroc", "balanced_accuracy", "auprc"):
        assert own[metric, "local", "cedar"] == pytest.approx(expected[metric], abs=1e-7)
    assert own["auroc", "joined", "cedar"] != own["auroc", "local", "cedar"]


def test_what_it_gains_is_a_study_of_its_own_rows(joined: Joined) -> None:
    results = pd.read_csv(joined.folder / "alone" / "results.csv")
    assert set(results["client"]) == {"cedar"} and "logistic_regression" in set(results["method"])
    own = results.query("split == 'test' and metric == 'auroc'").set_index("method")["value"]
    lift = pd.read_csv(joined.folder / "alone" / "lift.csv").query(
        "metric == 'auroc' and client == 'cedar'"
    )
    lift = lift.set_index(["reference", "method"])
    for reference in ("local", "best_alone"):
        assert lift.loc[(reference, "joined"), "mean"] == pytest.approx(
            own["joined"] - own[reference]
        )
    chosen = joined.comparison.collected.chosen.set_index("best")["method"]
    assert own["best_alone"] == own[chosen["best_alone"]] == joined.answer.alone
    # of one seed, the interval is that of paired resamples of the test rows
    drawn = [
        pd.read_parquet(joined.folder / "alone" / "runs" / name / "seed_1" / "bootstrap.parquet")[
            "cedar", "auroc"
        ]
        for name in ("joined", chosen["best_alone"])
    ]
    interval = [lift.loc[("best_alone", "joined"), end] for end in ("rows_low", "rows_high")]
    assert interval == pytest.approx(np.quantile(drawn[0] - drawn[1], [0.025, 0.975]).tolist())
    told = str(joined)
    assert (
        "cedar: Not enough data: 1 seed; a verdict needs 3 or more" in told
        and "Next: fedlit predict" in told
    )
    assert "cedar joins" in (joined.folder / "alone" / "report.html").read_text(encoding="utf-8")


def test_all_go_on_together_from_the_run(inside: Path) -> None:
    """As a fit of all tables that starts from its checkpoint."""
    every = {**SMALL, "data": {**SMALL["data"], **made("ash", "birch", "cedar")["data"]}}
    start = f"--model.start={{checkpoint: {inside / 'checkpoints' / 'last.ckpt'}}}"
    run = load(str(write("all.yaml", every)), start)
    run.describe()
    clients = run.loop.federation
    for name in ("ash", "birch"):
        saved = tensors(inside, name)
        now = clients[name].state_dict()
        assert all(torch.equal(saved[key], now[key]) for key in saved)
    assert torch.equal(
        clients["cedar"].state_dict()["core.0.weight"], tensors(inside, "ash")["core.0.weight"]
    )
    run.fit(quiet=True)
    assert run.folder is not None
    ends = [tensors(run.folder, name)["core.0.weight"] for name in ("ash", "birch", "cedar")]
    assert torch.equal(ends[0], ends[2]) and not torch.equal(
        ends[0], tensors(inside, "ash")["core.0.weight"]
    )


def test_what_was_private_in_the_run_stays_there() -> None:
    """Of two clients alike all tensors have a newcomer's shapes: it could take them, and must
    not."""
    both = {
        **SMALL,
        "data": {**SMALL["data"], **made("ash", "fir")["data"]},
        "trainer": {"max_epochs": 1},
    }
    load(str(write("alike.yaml", both))).fit(quiet=True)
    joining = prepare("alike", {**SMALL, **made("cedar", "fir")}, ["--data.leave_out=[fir]"])
    assert any(note.startswith("only data.source of --config is used") for note in joining.notes)
    new = joining.joined()
    alone = joining.alone()
    for run in (new, alone):
        run.describe()
    own, drawn = (run.loop.federation["cedar"].state_dict() for run in (new, alone))
    same = {name.partition(".")[0] for name in own if torch.equal(own[name], drawn[name])}
    assert {"encoder", "head"} <= same and not torch.equal(
        own["core.0.weight"], drawn["core.0.weight"]
    )
    assert all(torch.equal(own[name], drawn[name]) for name in own if not name.startswith("core."))
    with pytest.raises(ConfigError, match=r"--exchange: .* found exchange.federated"):
        prepare("alike", CEDAR, ["--exchange.federated=['*']"])


def test_columns_that_a_newcomer_lacks_are_named() -> None:
    few = {**SMALL["data"], **made("ash", "dune")["data"], "columns": ["x0", "x1", "x4"]}
    load(str(write("few.yaml", {**SMALL, "data": few, "trainer": {"max_epochs": 1}}))).fit(
        quiet=True
    )
    joining = prepare("few", made("birch"))
    assert joining.joined().describe().clients["birch"]["features"] == 2 and joining.notes[
        -1
    ].endswith(": x4")


def test_a_wholly_federated_network_has_nothing_to_train(inside: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cedar.*encoder.0.weight: expected the shape|whole network is federated"
    ):
        content = {
            **SMALL,
            "data": {**SMALL["data"], **made("ash")["data"]},
            "exchange": {"federated": ["*"]},
        }
        load(str(write("whole.yaml", content))).fit(quiet=True)
        prepare("whole", CEDAR).joined().describe()


def test_the_first_run_may_be_gone_once_it_has_joined(joined: Joined, inside: Path) -> None:
    folder = joined.folder
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["start"]["checkpoint"] = "gone.ckpt"
    moved = write("moved.yaml", config)
    expected = pd.read_csv(folder / "test.csv")
    run = load(str(moved), f"--ckpt_path={folder / 'checkpoints' / 'last.ckpt'}")
    results = run.test(folder / "checkpoints" / "last.ckpt", quiet=True)
    assert results.scores["cedar"]["auroc"] == pytest.approx(float(expected["auroc"].iloc[0]))
    with pytest.raises(ConfigError, match=r"model.start.checkpoint: .*found no file gone.ckpt"):
        load(str(moved)).describe()


def test_training_that_was_cut_short_goes_on_with_the_same_bits() -> None:
    new = prepare("mine", CEDAR)
    folders = []
    for name, epochs, checkpoint in (("whole", 3, None), ("cut", 1, None), ("cut", 3, "last")):
        run = new.joined(f"--trainer.max_epochs={epochs}", f"--name={name}_way")
        run.fit(checkpoint, quiet=True)
        assert run.folder is not None
        folders.append(run.folder)
    expected, found = (tensors(folder, "cedar") for folder in (folders[0], folders[2]))
    assert folders[1] == folders[2] and all(
        torch.equal(expected[key], found[key]) for key in expected
    )

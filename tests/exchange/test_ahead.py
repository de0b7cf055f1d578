"""Exchanges within an epoch on a device that runs ahead: the same bits, and nothing is read."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import one_in
from federations import METHODS, SLOW, Explodes, Faulty, alike, different, trained, weights
from lightning.pytorch.callbacks import ModelCheckpoint
from unread import Unread

from fedlit import FedAdam, FedAvgM, FedProx, Mean
from fedlit.errors import RunError
from fedlit.exchange import exchange as exchange_module
from fedlit.exchange.ahead import masked_mean
from fedlit.exchange.columns import Columns
from fedlit.exchange.rules.mean import mean


@pytest.fixture
def _ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats the CPU as a device that runs ahead."""
    monkeypatch.setattr(exchange_module, "runs_ahead", lambda device: True)


@pytest.mark.parametrize("weight", [1.0, 7.0])
def test_masked_mean_has_the_bits_of_a_mean_of_the_others(weight: float) -> None:
    generator = torch.Generator().manual_seed(0)
    clients = "abcdef"
    states = {name: {"w": torch.randn(5, 3, generator=generator)} for name in clients}
    states |= {name: {**states[name], "some": torch.tensor([-0.0, 1.0])} for name in "be"}
    of_clients = {name: weight * (1 + row) for row, name in enumerate(clients)}
    for usable in ("abcdef", "bcf", "ef", "b"):
        sent = {
            name: {
                key: value if name in usable else torch.full_like(value, math.nan)
                for key, value in state.items()
            }
            for name, state in states.items()
        }
        mask = torch.tensor([name in usable for name in clients])
        expected = mean({name: states[name] for name in usable}, of_clients)
        found = masked_mean(Columns(sent), of_clients, mask)
        assert not different(expected, found.state), usable
        assert {name for name, present in found.present.items() if present} == set(expected)


CORE: dict[str, Any] = {"federated": ["core"]}
EXCHANGES: dict[str, dict[str, Any]] = {
    "every step": {**CORE, "every": "step"},
    "every 3 steps, half the rate": {**CORE, "every": {"steps": 3}, "rate": 0.5},
    "by rows, statistics too": {
        **CORE, "every": "step", "rule": partial(Mean, "rows"), "buffers": "average",
    },
    "momentum, half take part": {
        **CORE, "every": "step", "rule": partial(FedAvgM, 0.5), "participation": 0.5,
    },
    "reset, no guard": {
        **CORE, "every": "step", "rule": partial(FedAdam, 0.05), "optimizer_state": "reset",
        "guard": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("case", EXCHANGES)
def test_honest_clients_get_the_same_bits_unread(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = EXCHANGES[case]
    read = trained(tmp_path / "read", exchange=exchange, loop={"optimizer": SLOW})
    monkeypatch.setattr(exchange_module, "runs_ahead", lambda device: True)
    watch = Unread()
    run = trained(
        tmp_path / "ahead", exchange=exchange, loop={"optimizer": SLOW}, callbacks=[watch]
    )
    assert watch.steps > 0
    assert different(weights(read), weights(run)) == []
    assert (read.exchange.rounds, read.exchange.bytes) == (run.exchange.rounds, run.exchange.bytes)


@pytest.mark.parametrize(
    "method", one_in(9, [name for name in METHODS if name != "fedalt, an epoch each"])
)
def test_no_step_of_a_method_reads(method: str, tmp_path: Path) -> None:
    watch = Unread()
    options = dict(METHODS[method])
    exchange = options.get("exchange")
    if exchange:
        options["exchange"] = {**exchange, "every": "epoch"}
    trained(tmp_path, callbacks=[watch], epochs=2, **options)
    assert watch.steps > 0


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("client", [None, FedProx], ids=["plain layers", "vmap"])
def test_stacked_steps_and_exchanges_read_nothing(client: Any, tmp_path: Path) -> None:
    watch = Unread()
    options = {} if client is None else {"client": client}
    run = alike(
        tmp_path, exchange={**CORE, "every": "step"}, callbacks=[watch], epochs=2, **options
    )
    run.fit(quiet=True)
    assert watch.steps > 0


def test_the_watch_sees_what_an_exchange_reads_on_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="waits for the device"):
        trained(tmp_path, exchange={**CORE, "every": "step"}, callbacks=[Unread()])


def bad(fault: str) -> type[Faulty]:
    return type(f"Ahead_{fault}", (Faulty,), {"fault": fault})


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("fault", ["nan", "state", "1e37"])
def test_a_faulty_client_is_left_out_named_and_mended(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = {**CORE, "every": "step"}
    run = trained(tmp_path / "all", client=bad(fault), exchange=exchange, epochs=2)
    finding = "not_finite" if fault == "nan" else "left_out"
    counts = run.exchange.incident_counts
    assert counts == {"cedar": {"exchanges": 8, finding: 8}}
    assert "exchange 1: client 'cedar' was left out" in caplog.text
    others = trained(tmp_path / "others", exchange=exchange, clients=("ash", "birch"), epochs=2)
    honest = {name: value for name, value in weights(run).items() if "cedar" not in name}
    assert different(honest, weights(others)) == []
    cedar = run.loop.federation["cedar"]
    assert all(bool(tensor.isfinite().all()) for tensor in cedar.state_dict().values())
    assert not cedar._optimizers[0].state


@pytest.mark.usefixtures("_ahead")
def test_a_client_may_sit_out_before_it_is_known_to_be_left_out(tmp_path: Path) -> None:
    exchange = {**CORE, "every": "step", "participation": 0.5, "minimum": 1}
    options: dict[str, Any] = {"client": bad("nan"), "exchange": exchange, "epochs": 4}
    for seed in range(4):
        run = trained(tmp_path / str(seed), seed=seed, **options)
        assert run.exchange.not_finite
        cedar = run.loop.federation["cedar"]
        assert all(bool(tensor.isfinite().all()) for tensor in cedar.state_dict().values())


@pytest.mark.usefixtures("_ahead")
def test_too_few_usable_clients_end_the_run_with_the_epoch(tmp_path: Path) -> None:
    exchange = {**CORE, "every": "step", "minimum": 3}
    with pytest.raises(RunError, match=r"exchange 1: .*cedar"):
        trained(tmp_path, client=bad("nan"), exchange=exchange)


@pytest.mark.usefixtures("_ahead")
@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_a_run_resumed_within_an_epoch_has_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "exchange": {**CORE, "every": {"steps": 2}, "rate": 0.5},
        "client": Explodes,
        "epochs": 3,
        "data": {"batches": 7},
    }
    kept = ModelCheckpoint(
        tmp_path / "kept", filename="{step}", every_n_train_steps=3, save_top_k=-1
    )
    whole = trained(tmp_path / "whole", callbacks=[kept], **options)
    assert whole.exchange.not_finite
    resumed = trained(tmp_path / "resumed", tmp_path / "kept" / "step=12.ckpt", **options)
    assert different(weights(whole), weights(resumed)) == []
    assert whole.exchange.incident_counts == resumed.exchange.incident_counts

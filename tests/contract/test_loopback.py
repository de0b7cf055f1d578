"""Contract 12, and the others over it: sites that exchange bytes end with the bits of one federation.

Whatever the contracts say of one federation then holds for its sites: they are compared with it tensor by tensor,
score by score and byte by byte.
"""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import ALL, one_in
from federations import Explodes, Killed, Made, StopAfter, different, make_run, weights
from lightning.pytorch import Callback, Trainer
from loopback import LoopbackServer, in_processes
from sites import history, hub_of, in_a_process, joint, over_loopback

import fedlit
from fedlit.errors import RunError
from fedlit.exchange.rules import IFCA
from fedlit.exchange.wire import unpack
from fedlit.train.callbacks import Checkpoints

SITES = [name for name in ALL if name != "centralized"]  # which needs all rows in one place


def plain(method: str, **more: Any) -> dict[str, Any]:
    own = ALL[method]
    return {**own, "loop": {**own.get("loop", {}), "engine": "plain"}, "epochs": 2, **more}


def same(whole: fedlit.Run, sites: dict[str, fedlit.Run]) -> None:
    """Tensors, scores, what was logged, rounds, bytes, who was left out."""
    assert different(weights(whole), joint(sites)) == []
    results = whole.loop.results["validation"]
    for name, run in sites.items():
        own = run.loop.results["validation"]
        assert repr(own.scores) == repr({name: results.scores[name]}) and repr(own.summary) == repr(results.summary)
        assert history(run) == history(whole, name)
        for counted in ("rounds", "bytes", "found"):
            assert getattr(run.exchange, counted) == getattr(whole.exchange, counted), counted
        assert run.loop.kernels == whole.loop.kernels


@pytest.mark.parametrize("method", one_in(5, SITES))
def test_12_the_transport_changes_no_bit(method: str, tmp_path: Path) -> None:
    whole = make_run(tmp_path / "whole", **plain(method))
    whole.fit(quiet=True)
    same(whole, over_loopback(tmp_path, **plain(method)))


COHORTS: dict[str, dict[str, Any]] = {
    "half a round at half the rate, by rows": {"participation": 0.5, "rate": 0.5, "rule": fedlit.Mean("rows")},
    "half a round": {"participation": 0.5, "every": {"steps": 3}},
    "reset every step": {"optimizer_state": "reset", "every": "step"},
}


@pytest.mark.parametrize("exchange", one_in(3, COHORTS))
def test_12_cohorts_are_drawn_alike(exchange: str, tmp_path: Path) -> None:
    options = plain("local", exchange={"federated": ["core"], **COHORTS[exchange]})
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    same(whole, over_loopback(tmp_path, **options))


@pytest.mark.parametrize(
    "case",
    one_in(5, product(["ifca", "cfl", "two optimizers", "forest", "global layers, rate 0.5, every 3 steps"], [3, 6])),
)
def test_3_killed_sites_and_a_killed_hub_go_on_with_the_same_bits(case: tuple[str, int], tmp_path: Path) -> None:
    method, step = case
    whole = make_run(tmp_path / "whole", **plain(method))
    whole.fit(quiet=True)
    hub = hub_of(make_run(tmp_path / "first", **plain(method)))
    stop = {"callbacks": lambda folder: [StopAfter(step, folder / "middle.ckpt", Killed)]}
    over_loopback(tmp_path, hub, fail=True, **stop, **plain(method))
    torch.save(hub.state_dict(), tmp_path / "hub.pt")
    again = hub_of(make_run(tmp_path / "second", **plain(method)))
    again.load_state_dict(torch.load(tmp_path / "hub.pt", weights_only=True))
    resumed = over_loopback(tmp_path, again, "middle.ckpt", **plain(method))
    assert different(weights(whole), joint(resumed)) == []
    assert {run.exchange.rounds for run in resumed.values()} == {whole.exchange.rounds}


def test_3_sites_that_resume_from_different_rounds_are_refused(tmp_path: Path) -> None:
    options = plain("cfl", checkpoints=Checkpoints(best=0, seconds=0))

    class Uneven(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
            if trainer.current_epoch == 0 and "birch" not in pl_module.federation:
                trainer.save_checkpoint(Path(trainer.default_root_dir).parents[1] / "middle.ckpt")

        def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
            if trainer.global_step == 1 and "birch" in pl_module.federation:
                trainer.save_checkpoint(Path(trainer.default_root_dir).parents[1] / "middle.ckpt")

    over_loopback(tmp_path, callbacks=lambda folder: [Uneven()], **options)
    with pytest.raises(RunError, match=r"expected all sites to be at the same point, .*resume all or none"):
        over_loopback(tmp_path, None, "middle.ckpt", **options)


def test_8_a_site_that_is_not_finite_is_left_out_named_everywhere_and_comes_back(tmp_path: Path) -> None:
    options = plain("local", client=Explodes, exchange={"federated": ["core"]}, epochs=3)
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    assert whole.exchange.not_finite == {"birch": 1}
    same(whole, over_loopback(tmp_path, **options))


def test_8_all_sites_end_with_the_same_message_when_too_few_remain(tmp_path: Path) -> None:
    options = plain("local", client=Explodes, exchange={"federated": ["core"], "minimum": 3})
    message = r"expected an update that counts from at least 3 clients, found it at 2 \(not finite: birch\)"
    with pytest.raises(RunError, match=message):
        over_loopback(tmp_path, **options)


def test_15_only_what_is_planned_leaves_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    heard = LoopbackServer._hear
    monkeypatch.setattr(
        LoopbackServer,
        "_hear",
        lambda self, channels: sent.append(found := heard(self, channels)) or found,  # type: ignore[func-returns-value]
    )
    sites = over_loopback(tmp_path, **plain("global layers"))
    told = [message["birch"] for message in sent if message]
    updates = [message["updates"]["birch"] for message in told if "exchange" in message]
    planned = sites["birch"].exchange.sharing.names["birch"]
    bytes_sent = sites["birch"].describe().clients["birch"]["bytes_per_exchange"]
    assert len(updates) == 2
    for update in updates:
        assert tuple(update["state"]) == planned and not update["published"]
        assert sum(4 * value.numel() for value in update["state"].values()) == bytes_sent
        assert update["rows"] == 0  # the mean does not need them
    topics = {message["share"]: message["facts"]["birch"] for message in told if "share" in message}
    assert set(topics) == {"clients", "columns", "steps", "federated", "train/loss", "scores/validation", "checkpoint"}
    assert topics["columns"] == {} and set(topics["federated"]["tensors"]) == set(planned)


def test_a_site_that_fails_is_the_one_that_is_heard_of(tmp_path: Path) -> None:
    class Fails(fedlit.FederatedClient):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.spec.name == "cedar" and self.trainer.global_step == 5:
                raise ValueError("a broken row")
            return super().training_step(batch, batch_idx)

    with pytest.raises(RunError, match=r"client 'cedar', step 6: ValueError: a broken row"):
        over_loopback(tmp_path, **plain("local", client=Fails, exchange={"federated": ["core"]}))


def test_bytes_that_are_no_message_are_refused() -> None:
    for content in (b"", b"\x00" * 8, b"\x00" * 7 + b"\x02{}", b"\x80\x04K\x01."):
        with pytest.raises(RunError, match="expected a message of fedlit"):
            unpack(content)


@pytest.mark.parametrize("name", ["quickstart", pytest.param("ifca", marks=pytest.mark.full)])
def test_12_sites_in_processes_that_open_their_own_file_only(name: str, tmp_path: Path) -> None:
    clients = ("ash", "birch", "cedar")
    for client, table in zip(clients, Made(clients).tables(8), strict=True):
        (tmp_path / client).mkdir()
        frame = table.features.assign(y=table.target)
        frame.to_csv(tmp_path / client / "table.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    rule = {"ifca": ["--exchange.rule=fedlit.IFCA", "--exchange.rule.init_args.clusters=2"], "quickstart": []}[name]
    more = ["--exchange.federated=[encoder, core, head]", "--data.align=both", *rule] if name == "ifca" else []
    keys = [
        "quickstart",
        *more,
        "--data.source=fedlit.Tables",
        "--data.source.init_args.target=y",
        "--model.engine=plain",
    ]
    keys += ["--trainer.max_epochs=2", "--data.batches=4", "--board.confusion_matrices=0"]
    files = {client: str(tmp_path / client / "table.csv") for client in clients}

    def arguments(own: dict[str, str]) -> list[str]:
        return [*keys, f"--data.source.init_args.files={json.dumps(own)}"]

    whole = fedlit.load(*arguments(files), f"--trainer.default_root_dir={tmp_path / 'whole'}")
    whole.fit(quiet=True)
    hub = hub_of(fedlit.load(*arguments(files)))
    assert isinstance(hub.rule, IFCA) == (name == "ifca")
    in_processes(
        hub,
        {
            client: (in_a_process, (str(tmp_path / client), str(tmp_path), arguments({client: files[client]})))
            for client in clients
        },
    )
    for client in clients:
        end = torch.load(tmp_path / client / "end.pt", weights_only=True)
        expected = {key: value for key, value in weights(whole).items() if key.split(".")[1] == client}
        assert different(expected, end["weights"]) == []
        assert repr(end["scores"]) == repr({client: whole.loop.results["validation"].scores[client]})
        assert end["history"] == history(whole, client)

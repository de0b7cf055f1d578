"""The coordinator's side and the sites', without training: who leaves, who lies, what a rule makes of a sum."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from privacy.gathering import ID, MEAN, SITES, STARTS, WIDE, Sites, sent, shields, states
from torch import Tensor

from fedlit import Newton
from fedlit.errors import RunError
from fedlit.exchange.questions import Own
from fedlit.exchange.rule import Update
from fedlit.exchange.wire import question_to
from fedlit.privacy.client_level import epsilon
from fedlit.privacy.coordinator import SUM
from fedlit.privacy.memory import Memory, Received
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.sharing import Sharing


def test_the_sum_is_over_the_sites_whose_update_is_fit(tmp_path: Path) -> None:
    sites = sent(tmp_path, unfit=("dune",))
    gathering = sites.gathering()
    gathered = gathering.gather()
    assert gathering.sites == ["ash", "birch", "cedar"]
    ((_, update),) = gathered.items()
    exact = torch.stack([states()[site].state["w"].double() for site in gathering.sites]).mean(0)
    assert torch.allclose(update.state["w"].double(), exact, atol=1e-7, rtol=1e-7)
    with pytest.raises(RunError, match="this site has sent nothing fit"):
        sites({"dune": {"flags": gathering._flags_for("dune")}})


def test_a_site_sends_nothing_for_a_sum_that_it_has_not_drawn_itself(tmp_path: Path) -> None:
    """A coordinator calls a site unfit, or absent, to get a second sum, whose difference is that site's update."""
    sites = sent(tmp_path)
    for lie in (
        lambda site, flags: flags | {"dune": [False, flags["dune"][1]]},
        lambda site, flags: {name: own for name, own in flags.items() if name != "dune"},
    ):
        sites.lie = lie
        with pytest.raises(RunError, match="nothing was sent"):
            sites.gathering().gather()
    sites.lie = lambda site, flags: flags
    sites.gathering().gather()


def test_a_round_is_masked_once_also_from_an_earlier_checkpoint(tmp_path: Path) -> None:
    """dune says after a restart that it is unfit: the others have sent their part of the sum with it."""
    total = sent(tmp_path).gathering().gather()[SUM].state["w"]
    assert torch.equal(sent(tmp_path, seed=9).gathering().gather()[SUM].state["w"], total)  # the bytes of before
    with pytest.raises(RunError, match="round 1: expected to be asked again for the same answer"):
        sent(tmp_path, unfit=("dune",)).gathering().gather()


def test_who_has_a_tensor_does_not_change_from_round_to_round(tmp_path: Path) -> None:
    """A coordinator that says after a restart that dune lacks a tensor, to see the sum of the others."""
    sent(tmp_path).gathering().gather()
    lie = Sharing({**WIDE.names, "dune": ()}, {**WIDE.parameters, "dune": ()}, WIDE.forms)
    told = shields(tmp_path, sharing=lie)
    for site, shield in told.items():
        shield.receive(0, {"w": torch.ones(3)})
        shield.send(1, states()[site])
    with pytest.raises(RunError, match="expected each site to federate what it did before"):
        Sites(told, 1).gathering(sharing=lie).gather()


def test_a_lost_memory_is_refused(tmp_path: Path) -> None:
    level = Privacy(client_level=ClientLevel(clip=1.0, noise=2.0))
    shields(tmp_path, privacy=level)["ash"].send(0, states()["ash"])
    (tmp_path / "ash" / "memory.db").unlink()
    with pytest.raises(RunError, match="found that it is gone"):
        Memory(tmp_path / "ash", ID)


def test_a_question_that_is_put_again_is_answered_once_and_over_the_same_sites(tmp_path: Path) -> None:
    rule, asked = Newton(of="all"), list[Own]()
    own = shields(tmp_path, rule)

    def answer(question: Own) -> dict[str, Tensor]:
        asked.append(question)
        return {"value": torch.tensor(float(len(asked)))}

    def put(number: int, at: float, unfit: tuple[str, ...] = ()) -> Any:
        flags = Sites(own, number, unfit).gathering(rule)._flags_for("ash")
        question = question_to(Own("curvature", {"at": torch.full((1,), at)}))
        return own["ash"].answer(number, {"flags": flags, "n": 0, "question": question}, answer)

    first, second = put(0, 1.0), put(0, 1.0)
    assert torch.equal(first["state"]["value"], second["state"]["value"]) and len(asked) == 1
    with pytest.raises(RunError, match="expected to be asked again for the same answer"):
        put(0, 2.0)
    with pytest.raises(RunError, match="the difference would be the answer of one site"):
        put(3, 1.0, ("dune",))


def test_what_was_received_is_kept_as_long_as_a_site_may_go_back(tmp_path: Path) -> None:
    received = Received(tmp_path, ID, STARTS)
    assert torch.equal(received.before(0)["w"], torch.zeros(3)) and received.told(0) == {}
    received.put(0, {"w": torch.ones(3), "down/x": torch.ones(1)})
    received.put(1, {"b": torch.ones(())})
    again = Received(tmp_path, ID, STARTS)
    assert {name: float(own.sum()) for name, own in again.before(1).items()} == {"w": 3, "b": 0}
    assert {name: float(own.sum()) for name, own in again.before(2).items()} == {"w": 3, "b": 1}
    again.put(7, {"b": torch.ones(())})  # it stayed away for some
    assert {name: float(own.sum()) for name, own in again.told(8).items()} == {"w": 3, "b": 1}
    again.forget(2)
    assert again.before(2)["b"] == 1
    with pytest.raises(RunError, match=r"exchange 2: expected .*received\.db"):
        again.before(1)


def test_an_update_that_is_too_long_or_not_finite_is_unfit(tmp_path: Path) -> None:
    shield = shields(tmp_path, MEAN, Privacy(masked=Masked(norm=2.0)))["ash"]
    unfit = {
        value: shield.unfit(0, Update({"w": torch.tensor([value, 0, 0])})) for value in (2.0, 2.01, math.nan, math.inf)
    }
    assert unfit[2.0] == "" and "is 2.01 long, the bound is 2" in unfit[2.01]
    assert unfit[math.inf] == unfit[math.nan] == "its update is not finite"
    shield.receive(0, {"w": torch.tensor([2.0, 0, 0])})
    assert not shield.unfit(1, Update({"w": torch.tensor([3.9, 0, 0])}))


def test_another_name_of_the_federation_finds_the_same_memory(tmp_path: Path) -> None:
    level = ClientLevel(clip=1.0, noise=2.0, answers=2)
    shield = shields(tmp_path, privacy=Privacy(client_level=level))["ash"]
    own = states()["ash"]
    noised = shield.send(0, own).state["w"]
    assert torch.equal(shield.send(0, own).state["w"], noised)

    def under(name: str) -> Shield:
        other = Shield("ash", shield.privacy, shield.rule, tmp_path / "ash", name, lambda number: SITES)
        other.meet({"ash": other.offer()}, WIDE, {"w": STARTS["w"]})
        return other

    other = under("f" * 32)  # a person has accepted that federation
    other.send(0, own)
    assert other.epsilon == epsilon([2.0] * 2, 1e-5)
    with pytest.raises(RunError, match="expected at most 2 noised answers of this site"):
        under("e" * 32).send(0, own)

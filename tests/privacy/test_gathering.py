"""The coordinator's side and the sites', without training: who leaves, who lies, what a rule makes of a sum."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from torch import Tensor

import fedlit
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.questions import Own
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules import CFL, IFCA, FedAvgM, GrowForest, Newton
from fedlit.exchange.wire import pack, question_to, unpack
from fedlit.privacy.client_level import epsilon
from fedlit.privacy.coordinator import SUM, Gathering
from fedlit.privacy.layout import layout_of
from fedlit.privacy.memory import Memory, Received
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.sharing import Sharing

ID = "0123456789abcdef" * 2
SITES = ("ash", "birch", "cedar", "dune")
REGISTERED = {site: ec.generate_private_key(ec.SECP384R1()) for site in SITES}
NAMES = {site: ("w", "b") for site in SITES} | {"dune": ("w",)}
SHARING = Sharing(NAMES, NAMES, {"w": ("float32", (3,)), "b": ("float32", ())})
STARTS = {"w": torch.zeros(3), "b": torch.zeros(())}
MASKED = Privacy(masked=Masked())


def states(seed: int = 8, sharing: Sharing = SHARING) -> dict[str, Update]:
    random = torch.Generator().manual_seed(seed)
    return {
        site: Update({name: torch.randn(sharing.forms[name][1], generator=random) for name in names}, rows=9 + k)
        for k, (site, names) in enumerate(sharing.names.items())
    }


def shields(folder: Path, rule: Rule, privacy: Privacy = MASKED, sharing: Sharing = SHARING) -> dict[str, Shield]:
    own = {
        site: Shield(site, privacy, rule, folder / site, ID, lambda number: sharing.names, REGISTERED[site])
        for site in sharing.names
    }
    offers = {site: unpack(pack(shield.offer())) for site, shield in own.items()}
    for site, shield in own.items():
        shield.meet(offers, sharing, {name: STARTS[name] for name in sharing.names[site]})
    return own


class Sites:
    """Sites as a coordinator reaches them. ``lie`` changes what it tells a site of the others' flags."""

    def __init__(self, own: Mapping[str, Shield], number: int = 0, unfit: tuple[str, ...] = ()) -> None:
        self.shields, self.number = own, number
        self.flags = {
            site: (site not in unfit, shield.flags(number, fit=site not in unfit)) for site, shield in own.items()
        }
        self.lie = lambda site, flags: flags
        self.answers: dict[str, Any] = {}

    def __call__(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for site, question in questions.items():
            question = unpack(pack({**question, "flags": self.lie(site, question["flags"])}))
            told[site] = unpack(pack(self.shields[site].answer(self.number, question, self.answers.get(site))))
        return told

    def gathering(self, rule: Rule, sharing: Sharing, put: Any = None) -> Gathering:
        assert MASKED.masked is not None
        return Gathering(MASKED.masked, rule, sharing, self.number, self.flags, put or self)


def sent(own: Mapping[str, Shield], updates: Mapping[str, Update], number: int = 0) -> Mapping[str, Shield]:
    for site, shield in own.items():
        assert not shield.unfit(number, updates[site])
        assert shield.send(number, updates[site]).state == {}
    return own


def test_the_sum_is_over_the_sites_whose_update_is_fit(tmp_path: Path) -> None:
    rule, wide = fedlit.Mean(), _wide()
    own, sites = states(sharing=wide), Sites(shields(tmp_path, rule, sharing=wide), unfit=("dune",))
    sent({site: sites.shields[site] for site in SITES[:3]}, own)
    gathering = sites.gathering(rule, wide)
    gathered = gathering.gather()
    assert gathering.sites == ["ash", "birch", "cedar"]
    ((_, update),) = gathered.items()
    exact = torch.stack([own[site].state["w"].double() for site in gathering.sites]).mean(0)
    assert torch.allclose(update.state["w"].double(), exact, atol=1e-7, rtol=1e-7)
    with pytest.raises(RunError, match="this site has sent nothing fit"):
        sites({"dune": {"flags": gathering._flags_for("dune")}})


def test_a_site_sends_nothing_for_a_sum_that_it_has_not_drawn_itself(tmp_path: Path) -> None:
    """A coordinator that calls a site unfit, or absent, to get a second sum whose difference is that site's update."""
    rule, wide = fedlit.Mean(), _wide()
    sites = Sites(sent(shields(tmp_path, rule, sharing=wide), states(sharing=wide)))
    lies = (
        lambda site, flags: flags | {"dune": [False, flags["dune"][1]]},
        lambda site, flags: flags | {"dune": [False, ""]},
        lambda site, flags: {name: own for name, own in flags.items() if name != "dune"},
        lambda site, flags: flags | {"eve": [True, flags["dune"][1]]},
    )
    for lie in lies:
        sites.lie = lie
        with pytest.raises(RunError, match=r"masked sums, round 1: expected .*nothing was sent"):
            sites.gathering(rule, wide).gather()
    sites.lie = lambda site, flags: flags
    sites.gathering(rule, wide).gather()
    assert all(len(shield.memory.entries) == 1 for shield in sites.shields.values())


def test_a_round_is_masked_once_also_from_an_earlier_checkpoint(tmp_path: Path) -> None:
    """dune says after a restart that it is unfit: the others have sent their part of the sum with it."""
    rule, wide = fedlit.Mean(), _wide()
    first = Sites(sent(shields(tmp_path, rule, sharing=wide), states(sharing=wide)))
    total = first.gathering(rule, wide).gather()[SUM].state["w"]
    again = Sites(sent(shields(tmp_path, rule, sharing=wide), states(seed=9, sharing=wide)))
    assert torch.equal(again.gathering(rule, wide).gather()[SUM].state["w"], total)  # the bytes of before
    without = Sites(sent(shields(tmp_path, rule, sharing=wide), states(sharing=wide)), unfit=("dune",))
    with pytest.raises(RunError, match="round 1: expected to be asked again for the same answer"):
        without.gathering(rule, wide).gather()


def test_who_has_a_tensor_does_not_change_from_round_to_round(tmp_path: Path) -> None:
    """A coordinator that says after a restart that dune lacks a tensor, to see the sum of the others."""
    rule, wide = fedlit.Mean(), _wide()
    first = Sites(sent(shields(tmp_path, rule, sharing=wide), states(sharing=wide)))
    first.gathering(rule, wide).gather()
    lie = Sharing({**wide.names, "dune": ()}, {**wide.parameters, "dune": ()}, wide.forms)
    told = shields(tmp_path, rule, sharing=lie)
    for site, shield in told.items():
        shield.receive(0, {"w": torch.ones(3)})
        shield.send(1, states(sharing=wide)[site])
    with pytest.raises(RunError, match="expected each site to federate what it did before"):
        Sites(told, 1).gathering(rule, lie).gather()


def test_another_name_of_the_federation_finds_the_same_memory(tmp_path: Path) -> None:
    level = ClientLevel(clip=1.0, noise=2.0, answers=2)
    shield = shields(tmp_path, fedlit.Mean(), Privacy(client_level=level), sharing=_wide())["ash"]
    own = states(sharing=_wide())["ash"]
    noised = shield.send(0, own).state["w"]
    assert torch.equal(shield.send(0, own).state["w"], noised)

    def under(name: str) -> Shield:
        other = Shield("ash", shield.privacy, shield.rule, tmp_path / "ash", name, lambda number: SITES)
        other.meet({"ash": other.offer()}, _wide(), {"w": STARTS["w"]})
        return other

    other = under("f" * 32)  # a person has accepted that federation
    other.send(0, own)
    assert other.epsilon == epsilon([2.0] * 2, 1e-5)
    with pytest.raises(RunError, match="expected at most 2 noised answers of this site"):
        under("e" * 32).send(0, own)


def test_a_damaged_or_lost_memory_is_refused(tmp_path: Path) -> None:
    level = Privacy(client_level=ClientLevel(clip=1.0, noise=2.0))
    shield = shields(tmp_path, fedlit.Mean(), level, sharing=_wide())["ash"]
    shield.send(0, states(sharing=_wide())["ash"])
    path = tmp_path / "ash" / "memory.db"
    whole = path.read_bytes()
    for place in range(60, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :])
        try:
            found = Memory(tmp_path / "ash", ID).entries
        except FedlitError:
            continue
        assert found == shield.memory.entries  # a byte that means nothing
    path.unlink()
    with pytest.raises(RunError, match="found that it is gone"):
        Memory(tmp_path / "ash", ID)


def test_an_answer_that_could_not_be_written_is_made_anew(tmp_path: Path) -> None:
    """Killed, or out of space, before the answer and its entry are on disk: nobody has seen it."""
    memory = Memory(tmp_path, ID)
    whole = (tmp_path / "memory.db").read_bytes()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as database:
        database.execute("BEGIN EXCLUSIVE")  # a disk that does not take it
        with pytest.raises(OSError, match=r"memory\.db"):
            memory.once("noised", 0, None, lambda: {"w": torch.zeros(1)})
    assert (tmp_path / "memory.db").read_bytes() == whole
    for again in (memory, Memory(tmp_path, ID)):  # the second time it is there
        assert torch.equal(again.once("noised", 0, None, lambda: {"w": torch.rand(1) + 1})["w"], _first(again))
    again.forget(1)
    with pytest.raises(RunError, match="was let go; nothing was sent"):
        Memory(tmp_path, ID).once("noised", 0, None, lambda: {"w": torch.ones(1)})


def _first(memory: Memory) -> Tensor:
    return memory.once("noised", 0, None, dict)["w"]


def _wide() -> Sharing:
    names = {site: ("w",) for site in SITES}
    return Sharing(names, names, {"w": ("float32", (3,))})


def test_fewer_than_three_get_no_sum(tmp_path: Path) -> None:
    rule, wide = fedlit.Mean(), _wide()
    own = sent(shields(tmp_path, rule, sharing=wide), states(sharing=wide))
    sites = Sites(own, unfit=("ash", "dune"))
    with pytest.raises(ConfigError, match="expected at least 3 sites whose update is fit, found birch, cedar"):
        sites.gathering(rule, wide).gather()
    with pytest.raises(ConfigError, match="masked sums: expected at least 3 sites"):
        sites({"birch": {"flags": sites.gathering(rule, wide)._flags_for("birch")}})


def test_sites_that_received_different_tensors_give_no_sum(tmp_path: Path) -> None:
    """A coordinator that sends a model of its own making to some, so as to know what they answer."""
    rule, own = fedlit.Mean(), states()
    sites = Sites(shields(tmp_path, rule), number=1)
    for site, shield in sites.shields.items():
        value = torch.ones(3) if site != "cedar" else torch.ones(3) + 1e-6
        shield.receive(0, {"w": value, "b": torch.ones(())} if site != "dune" else {"w": value})
        shield.send(1, own[site])
    with pytest.raises(RunError, match="masks that cancel over ash, birch, cedar, dune"):
        sites.gathering(rule, SHARING).gather()


def test_a_question_that_is_put_again_is_answered_once_and_over_the_same_sites(tmp_path: Path) -> None:
    own, asked = shields(tmp_path, Newton(of="all"), sharing=_wide()), []

    def answer(question: Own) -> dict[str, Tensor]:
        asked.append(question)
        return {"value": torch.tensor(float(len(asked)))}

    def put(number: int, at: float, unfit: tuple[str, ...] = ()) -> Any:
        flags = Sites(own, number, unfit).gathering(Newton(of="all"), _wide())._flags_for("ash")
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


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"state": [1]},
        {"state": {"w": 1}},
        {"state": {"w": torch.zeros(3)}},
        {"state": {"w": torch.zeros(3).long(), "sum/0": torch.zeros(2).long()}},
        {"state": {"w": torch.zeros(4).long(), "sum/0": torch.zeros(1).long()}},
    ],
)
def test_a_message_of_another_form_is_refused_with_its_site(message: dict[str, Any], tmp_path: Path) -> None:
    sharing = _wide()
    sites = Sites(sent(shields(tmp_path, fedlit.Mean(), sharing=sharing), states(sharing=sharing)))
    with pytest.raises(RunError, match="masked sums: site 'birch': expected"):
        sites.gathering(fedlit.Mean(), sharing, lambda asked: sites(asked) | {"birch": message}).gather()


@pytest.mark.parametrize("asked", [{}, {"n": 0}, {"n": "0", "question": {}}, {"n": -1, "question": {}}, {"flags": 3}])
def test_a_question_of_another_form_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    shield = shields(tmp_path, fedlit.Mean())["ash"]
    shield.send(0, states()["ash"])
    with pytest.raises(RunError, match="masked sums, round 1: expected"):
        shield.answer(0, asked)


def test_answers_that_are_to_be_summed_are_told_to_nobody_singly(tmp_path: Path) -> None:
    own = shields(tmp_path, Newton(of="all"))
    shield, flags = own["ash"], Sites(own).gathering(Newton(of="all"), SHARING)._flags_for("ash")
    with pytest.raises(RunError, match="expected to be asked for curvature together with the other sites"):
        shield.refuse_single(Own("curvature", {}))
    shield.refuse_single(Own("another", {}))
    question = question_to(Own("another", {}))
    with pytest.raises(RunError, match="expected no question of Newton, found one"):
        shield.answer(0, {"flags": flags, "n": 0, "question": question}, lambda own: {})


def test_before_training_what_all_know_is_sent_and_nothing_is_counted(tmp_path: Path) -> None:
    shield = shields(tmp_path, FedAvgM(0.6), Privacy(client_level=ClientLevel(1.0, 1.0)))["ash"]
    sent = shield.send(-1, states()["ash"]).state
    assert all(torch.equal(sent[name], STARTS[name]) for name in ("w", "b")) and shield.epsilon == 0


def test_an_update_that_is_too_long_or_not_finite_is_unfit(tmp_path: Path) -> None:
    shield = shields(tmp_path, fedlit.Mean(), Privacy(masked=Masked(norm=2.0)))["ash"]
    unfit = {
        value: shield.unfit(0, Update({"w": torch.tensor([value, 0, 0]), "b": torch.zeros(())}))
        for value in (2.0, 2.01, float("nan"), float("inf"))
    }
    assert unfit[2.0] == "" and "is 2.01 long, the bound is 2" in unfit[2.01]
    assert unfit[float("inf")] == "its update is not finite"
    shield.receive(0, {"w": torch.tensor([2.0, 0, 0]), "b": torch.zeros(())})
    assert not shield.unfit(1, Update({"w": torch.tensor([3.9, 0, 0]), "b": torch.zeros(())}))


# -------------------------------------------------------------------- rules


@pytest.mark.parametrize("make", [fedlit.Mean, partial(fedlit.Mean, "rows"), partial(FedAvgM, 0.6)])
def test_a_rule_by_mean_makes_the_same_of_the_mean_alone(make: Any, tmp_path: Path) -> None:
    whole, alone = make(), make()
    assert whole.facts.by_mean and not whole.facts.adds_answers
    names = {site: ("w", "b") for site in SITES[:3]}
    sharing = Sharing(names, names, SHARING.forms)
    begin = {site: Update(STARTS) for site in names}
    for rule in (whole, alone):
        rule.begin(Round(-1, 0, begin, names))
    own = shields(tmp_path, alone, sharing=sharing)
    for number in range(3):
        updates = {site: update for site, update in states(number).items() if site in names}
        updates = {site: Update(own.state, own.rows, parameters=("w", "b")) for site, own in updates.items()}
        expected = whole(Round(number, 0, updates, names))
        sites = Sites(own, number)
        for site, shield in own.items():
            shield.send(number, updates[site])
        gathered = sites.gathering(alone, sharing).gather()
        found = alone(Round(number, 0, gathered, names))
        for site in names:
            shield = own[site]
            shield.receive(number, found[site])
            for name in names[site]:
                assert torch.allclose(found[site][name], expected[site][name], atol=5e-7, rtol=1e-6)


def test_a_rule_that_only_adds_answers_makes_the_same_of_the_sum() -> None:
    """Newton on made quadratics; the answers of all but one are zeros."""
    names = {site: ("prior.y: a", "prior.y: b") for site in SITES}
    random = torch.Generator().manual_seed(8)
    roots = {site: torch.randn(2, 2, dtype=torch.float64, generator=random) for site in SITES}
    aims = {site: torch.randn(2, dtype=torch.float64, generator=random) for site in SITES}

    def answer(site: str, question: Own) -> dict[str, Tensor]:
        at = torch.stack([question.tensors[name].double() for name in names[site]], -1)
        away, bend = at - aims[site], roots[site].T @ roots[site]
        return {
            "value y": 0.5 * (away @ bend * away).sum(-1),
            "gradient y": away @ bend,
            "curvature y": bend.expand(len(at), 2, 2).clone(),
        }

    def singly(questions: Mapping[str, Any]) -> dict[str, Any]:
        return {site: answer(site, question) for site, question in questions.items()}

    def summed(questions: Mapping[str, Any]) -> dict[str, Any]:
        answers = singly(questions)
        first, *others = answers
        total = {name: torch.stack([own[name] for own in answers.values()]).sum(0) for name in answers[first]}
        return {first: total, **{site: {name: own * 0 for name, own in total.items()} for site in others}}

    updates = {site: Update({name: torch.zeros(()) for name in names[site]}) for site in SITES}
    rule = Newton(of="all")
    assert rule.facts.adds_answers == {"curvature"} and not Newton(of="others").facts.adds_answers
    found = [Newton(of="all")(Round(0, 0, updates, names, ask)) for ask in (singly, summed)]
    for site in SITES:
        for name in names[site]:
            assert torch.allclose(found[0][site][name], found[1][site][name], rtol=1e-6)


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("privacy", "rule", "more", "message"),
    [
        (MASKED, IFCA(2), {}, "found IFCA, which needs each site's single"),
        (MASKED, CFL(), {}, "found CFL, which needs each site's single states"),
        (MASKED, GrowForest(), {}, "found GrowForest, which needs each site's single states"),
        (MASKED, Newton(of="others"), {}, "found Newton, which needs each site's single answers; .*of: all"),
        (MASKED, fedlit.Mean(), {"taking_part": 2}, "at least 3 sites in a round, found 2; raise exchange.part"),
        (MASKED, fedlit.Mean("rows"), {}, "expected all sites to federate the same tensors"),
        (
            MASKED,
            fedlit.Mean(),
            {"optimizer_state": "average"},
            "masked sums: exchange.optimizer_state: expected keep or reset",
        ),
        (MASKED, fedlit.Mean(), {"published": {"p": 1}}, r"that p would travel too \(publish\)"),
        (Privacy(None, ClientLevel(1, 1)), Newton(), {}, "found Newton: answers would be told as they are"),
    ],
)
def test_what_privacy_cannot_be_had_with_is_refused(
    privacy: Privacy, rule: Rule, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse(privacy, rule, SHARING, **{"taking_part": 4, **more})
    refuse(Privacy(), rule, SHARING, 4)


def test_tensors_that_noise_would_break_are_refused() -> None:
    level = Privacy(client_level=ClientLevel(1, 1))
    refuse(level, fedlit.Mean(), SHARING, 4)
    whole = Sharing(NAMES, NAMES, {"w": ("int64", (3,)), "b": ("float32", ())})
    with pytest.raises(ConfigError, match=r"expected floating-point tensors, found .*w"):
        refuse(level, fedlit.Mean(), whole, 4)
    buffers = Sharing(NAMES, {site: ("w",) for site in SITES}, SHARING.forms)
    with pytest.raises(ConfigError, match=r"expected parameters alone, found the buffers .*b"):
        refuse(level, fedlit.Mean(), buffers, 4)


def test_settings_and_refusals_need_no_extra_and_say_when_it_is_missing() -> None:
    code = """
import sys
for name in ("cryptography", "dp_accounting"):
    sys.modules[name] = None
from fedlit.errors import ConfigError
from fedlit.exchange.rules.mean import Mean
from fedlit.privacy.memory import Memory, Received
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.sharing import Sharing
names = {site: ("w",) for site in "abc"}
for privacy in (Privacy(Masked()), Privacy(Masked(), ClientLevel(1.0, 1.0))):
    try:
        refuse(privacy, Mean(), Sharing(names, names, {"w": ("float32", (3,))}), 3)
    except ConfigError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    one, both = done.stdout.splitlines()  # masks need no accountant
    assert "no cryptography; run: pip install 'fedlit[privacy]'" in one, done.stderr
    assert "no cryptography, dp_accounting" in both


def test_a_tensor_of_too_few_sites_is_refused_by_name() -> None:
    assert set(layout_of(SHARING, SITES, fedlit.Mean()).groups) == {SITES, SITES[:3]}
    with pytest.raises(ConfigError, match="b: expected at least 3 sites that have it and take part, found ash, birch;"):
        layout_of(SHARING, ("ash", "birch", "dune"), fedlit.Mean())
    with pytest.raises(ConfigError, match="expected at least 3 sites whose update is fit, found ash"):
        layout_of(SHARING, ("ash", "ash"), fedlit.Mean())

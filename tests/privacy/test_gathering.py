"""The coordinator's side and the sites', without training: who leaves, who lies, what a rule makes of a sum."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedlit
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.questions import Own
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules import CFL, IFCA, FedAvgM, GrowForest, Newton
from fedlit.exchange.wire import pack, question_to, unpack
from fedlit.privacy.coordinator import SUM, Gathering
from fedlit.privacy.refusals import layout_of, refuse
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.site import Received, Shield
from fedlit.sharing import Sharing

SITES = ("ash", "birch", "cedar", "dune")
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
    own = {site: Shield(site, privacy, rule, folder / site, "made") for site in sharing.names}
    offers = {site: unpack(pack(shield.offer())) for site, shield in own.items()}
    for site, shield in own.items():
        shield.meet(offers, sharing, {name: STARTS[name] for name in sharing.names[site]})
    return own


class Sites:
    """Sites as a coordinator reaches them; ``away`` says who does not answer, and when."""

    def __init__(self, own: Mapping[str, Shield], number: int = 0) -> None:
        self.shields, self.number = own, number
        self.asked: list[tuple[str, Any]] = []
        self.away = lambda site, question: False
        self.answers: dict[str, Any] = {}

    def __call__(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for site, question in questions.items():
            self.asked.append((site, question))
            if self.away(site, question):
                told[site] = None
            else:
                question = unpack(pack(question))
                told[site] = unpack(pack(self.shields[site].answer(self.number, question, self.answers.get(site))))
        return told


def test_a_site_that_leaves_is_left_out_under_new_masks_and_one_that_must_open_is_waited_for(tmp_path: Path) -> None:
    rule, wide = fedlit.Mean(), _wide()
    own, sites = states(sharing=wide), Sites(shields(tmp_path, rule, sharing=wide))
    for site, shield in sites.shields.items():
        assert not shield.unfit(0, own[site])
        assert shield.send(0, own[site]).state == {}
    late: list[int] = []

    def away(site: str, question: Mapping[str, Any]) -> bool:
        if site == "birch" and question.get("open") and len(late) < 2:
            late.append(1)
            return True
        return site == "dune"

    sites.away = away
    gathered = Gathering(MASKED.masked, rule, wide).gather(0, SITES, sites)
    assert gathered.took == ("ash", "birch", "cedar") and len(late) == 2
    ((_, update),) = gathered.updates.items()
    exact = torch.stack([own[site].state["w"].double() for site in gathered.took]).mean(0)
    assert torch.allclose(update.state["w"].double(), exact, atol=1e-7, rtol=1e-7)
    opened = [site for site, question in sites.asked if question.get("open")]
    assert opened == ["ash", "birch", "cedar", "birch", "birch"]
    # three messages of the first attempt and three of the second: a zero and three values; then what opens them
    assert gathered.bytes == 6 * 8 * 4 + 3 * 32


def _wide() -> Sharing:
    names = {site: ("w",) for site in SITES}
    return Sharing(names, names, {"w": ("float32", (3,))})


def test_fewer_than_three_get_no_sum(tmp_path: Path) -> None:
    sites = Sites(shields(tmp_path, fedlit.Mean(), sharing=_wide()))
    for site, shield in sites.shields.items():
        shield.send(0, states(sharing=_wide())[site])
    sites.away = lambda site, question: site in ("ash", "dune")
    with pytest.raises(RunError, match="round 1: expected at least 3 sites, found birch, cedar left; wait"):
        Gathering(MASKED.masked, fedlit.Mean(), _wide()).gather(0, SITES, sites)
    for asked in (["ash", "birch"], ["birch", "cedar", "dune"], ["ash", "birch", "eve"], ["ash", "ash", "birch"]):
        with pytest.raises((RunError, ConfigError), match="masked sums"):
            sites.shields["ash"].answer(0, {"attempt": 3, "sites": asked})


def test_sites_that_received_different_tensors_give_no_sum(tmp_path: Path) -> None:
    """A coordinator that sends a model of its own making to some, so as to know what they answer."""
    rule, own = fedlit.Mean(), states()
    sites = Sites(shields(tmp_path, rule), number=1)
    for site, shield in sites.shields.items():
        value = torch.ones(3) if site != "cedar" else torch.ones(3) + 1e-6
        shield.receive(0, {"w": value, "b": torch.ones(())} if site != "dune" else {"w": value})
        shield.send(1, own[site])
    with pytest.raises(RunError, match="masks that cancel over ash, birch, cedar, dune"):
        Gathering(MASKED.masked, rule, SHARING).gather(1, SITES, sites)


def test_a_shield_that_was_killed_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    rule, own = fedlit.Mean("rows"), states(sharing=_wide())
    privacy = Privacy(Masked(), ClientLevel(clip=1.0, noise=2.0))
    first = shields(tmp_path, rule, privacy, sharing=_wide())
    question = {"attempt": 0, "sites": list(SITES)}
    first["ash"].receive(0, {"w": torch.ones(3)})
    first["ash"].send(1, own["ash"])
    said = first["ash"].answer(1, question)["state"]
    again = shields(tmp_path, rule, privacy, sharing=_wide())
    again["ash"].send(1, own["ash"])
    repeated = again["ash"].answer(1, question)["state"]
    assert said.keys() == repeated.keys() and all(torch.equal(said[name], repeated[name]) for name in said)
    seed = again["ash"].answer(1, {"attempt": 0, "open": True})["opened"]
    third = shields(tmp_path, rule, privacy, sharing=_wide())["ash"]
    assert torch.equal(third.answer(1, {"attempt": 0, "open": True})["opened"], seed)  # without having trained again
    assert first["ash"].epsilon == again["ash"].epsilon == third.epsilon
    with pytest.raises(RunError, match="expected to be asked for an update of the round it is in"):
        third.answer(1, question)


def test_what_was_received_is_kept_as_long_as_a_site_may_go_back(tmp_path: Path) -> None:
    received = Received(tmp_path, STARTS)
    assert torch.equal(received.before(0)["w"], torch.zeros(3)) and received.told(0) == {}
    received.put(0, {"w": torch.ones(3), "down/x": torch.ones(1)})
    received.put(1, {"b": torch.ones(())})
    again = Received(tmp_path, STARTS)
    assert {name: float(own.sum()) for name, own in again.before(1).items()} == {"w": 3, "b": 0}
    assert {name: float(own.sum()) for name, own in again.before(2).items()} == {"w": 3, "b": 1}
    again.put(7, {"b": torch.ones(())})  # it stayed away for some
    assert {name: float(own.sum()) for name, own in again.told(8).items()} == {"w": 3, "b": 1}
    again.forget(2)
    assert again.before(2)["b"] == 1
    with pytest.raises(RunError, match=r"exchange 2: expected .*received-0\.safetensors"):
        again.before(1)


def test_a_coordinator_that_was_killed_in_a_round_goes_on_where_it_was(tmp_path: Path) -> None:
    sharing, rule = _wide(), fedlit.Mean()
    sites, begun = Sites(shields(tmp_path, rule, sharing=sharing)), []
    for site, shield in sites.shields.items():
        shield.send(0, states(sharing=sharing)[site])
    sites.away = lambda site, question: site == "dune"

    def killed(questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told = sites(questions)
        if any(own.get("open") for own in questions.values()):
            raise KeyboardInterrupt
        return told

    gathering = Gathering(MASKED.masked, rule, sharing)
    with pytest.raises(KeyboardInterrupt):
        gathering.gather(0, SITES, killed, begin=lambda attempt, left: begun.append((attempt, list(left))))
    assert begun == [(0, list(SITES)), (1, list(SITES[:3]))]
    attempt, left = begun[-1]
    again = gathering.gather(0, left, sites, attempt)
    exact = torch.stack([states(sharing=sharing)[site].state["w"].double() for site in left]).mean(0)
    assert again.took == SITES[:3] and torch.allclose(again.updates[SUM].state["w"].double(), exact, atol=1e-7)


def test_a_question_that_is_put_again_is_answered_once(tmp_path: Path) -> None:
    shield, asked = shields(tmp_path, Newton(of="all"), sharing=_wide())["ash"], []

    def answer(question: Own) -> dict[str, Tensor]:
        asked.append(question)
        return {"value": torch.tensor(float(len(asked)))}

    own = question_to(Own("curvature", {"at": torch.ones(1)}))
    question = {"attempt": 0, "sites": list(SITES), "n": 0, "question": own}
    first, second = shield.answer(0, question, answer), shield.answer(0, question, answer)
    assert torch.equal(first["state"]["value"], second["state"]["value"]) and len(asked) == 1
    shield.answer(0, {**question, "open": True})
    other = question_to(Own("curvature", {"at": torch.zeros(1)}))
    with pytest.raises(RunError, match="round 1, question 1: 'ash': expected no attempt 0"):
        shield.answer(0, {**question, "question": other}, answer)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"state": [1]},
        {"state": {"w": 1}},
        {"state": {"w": torch.zeros(3)}},
        {"state": {"w": torch.zeros(3).long(), "sum/0": torch.zeros(2).long()}},
        {"state": {"w": torch.zeros(4).long(), "sum/0": torch.zeros(1).long()}},
        {"opened": torch.zeros(31, dtype=torch.uint8)},
        {"opened": "x" * 32},
    ],
)
def test_a_message_of_another_form_is_refused_with_its_site(message: dict[str, Any], tmp_path: Path) -> None:
    sharing = _wide()
    sites = Sites(shields(tmp_path, fedlit.Mean(), sharing=sharing))
    for site, shield in sites.shields.items():
        shield.send(0, states(sharing=sharing)[site])

    def put(questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told = sites(questions)
        opening = any(own.get("open") for own in questions.values())
        return told | {"birch": message} if opening == ("opened" in message) else told

    with pytest.raises(RunError, match="masked sums: site 'birch': expected"):
        Gathering(MASKED.masked, fedlit.Mean(), sharing).gather(0, SITES, put)


@pytest.mark.parametrize(
    "asked",
    [{}, {"attempt": "0"}, {"attempt": -1, "sites": SITES}, {"attempt": 0, "n": 0, "sites": SITES}, {"attempt": 0}],
)
def test_a_question_of_another_form_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    shield = shields(tmp_path, fedlit.Mean())["ash"]
    shield.send(0, states()["ash"])
    with pytest.raises(RunError, match="masked sums, round 1: expected"):
        shield.answer(0, asked)


def test_answers_that_are_to_be_summed_are_told_to_nobody_singly(tmp_path: Path) -> None:
    shield = shields(tmp_path, Newton(of="all"))["ash"]
    with pytest.raises(RunError, match="expected to be asked for curvature together with the other sites"):
        shield.refuse_single(Own("curvature", {}))
    shield.refuse_single(Own("another", {}))
    question = question_to(Own("another", {}))
    with pytest.raises(RunError, match="expected no question of Newton, found one"):
        shield.answer(0, {"attempt": 0, "sites": list(SITES), "n": 0, "question": question}, lambda own: {})


def test_before_training_what_all_know_is_sent_and_nothing_is_counted(tmp_path: Path) -> None:
    shield = shields(tmp_path, FedAvgM(0.6), Privacy(client_level=ClientLevel(1.0, 1.0)))["ash"]
    sent = shield.send(-1, states()["ash"]).state
    assert all(torch.equal(sent[name], STARTS[name]) for name in ("w", "b")) and shield.epsilon == 0


def test_settings_that_differ_are_refused(tmp_path: Path) -> None:
    shield = Shield("ash", MASKED, fedlit.Mean(), tmp_path, "made")
    other = Shield("birch", Privacy(Masked(bits=30)), fedlit.Mean(), tmp_path / "b", "made")
    with pytest.raises(ConfigError, match=r"expected the same at all sites, found .*'bits': 32.* at ash and .*30"):
        shield.meet({"ash": shield.offer(), "birch": other.offer()}, SHARING, STARTS)


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
    assert whole.by_mean and not whole.adds_answers
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
        gathered = Gathering(MASKED.masked, alone, sharing).gather(number, list(names), sites)
        found = alone(Round(number, 0, gathered.updates, names))
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
    assert rule.adds_answers == {"curvature"} and not Newton(of="others").adds_answers
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
        (MASKED, fedlit.Mean("rows"), {}, "they tell those of dune"),
        (MASKED, fedlit.Mean(), {"optimizer_state": "average"}, "expected keep or reset with masked sums"),
        (MASKED, fedlit.Mean(), {"published": {"p": 1}}, r"that p would travel as they are \(publish\)"),
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
    with pytest.raises(ConfigError, match=r"expected floating-point tensors, found w of torch.int64"):
        refuse(level, fedlit.Mean(), whole, 4)
    buffers = Sharing(NAMES, {site: ("w",) for site in SITES}, SHARING.forms)
    with pytest.raises(ConfigError, match="found the buffer b: with noise a variance can fall below 0"):
        refuse(level, fedlit.Mean(), buffers, 4)


def test_settings_and_refusals_need_no_extra_and_say_when_it_is_missing() -> None:
    code = """
import sys
for name in ("cryptography", "dp_accounting"):
    sys.modules[name] = None
from fedlit.errors import ConfigError
from fedlit.exchange.rules.mean import Mean
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
    assert "that cryptography is missing; run: pip install 'fedlit[privacy]'" in one, done.stderr
    assert "that cryptography and dp_accounting are missing" in both


def test_a_tensor_of_too_few_sites_is_refused_by_name() -> None:
    assert set(layout_of(SHARING, SITES, fedlit.Mean()).groups) == {SITES, SITES[:3]}
    with pytest.raises(ConfigError, match="b: expected at least 3 sites that have it and take part, found ash, birch;"):
        layout_of(SHARING, ("ash", "birch", "dune"), fedlit.Mean())
    with pytest.raises(ConfigError, match="expected at least 3 sites that take part, found ash"):
        layout_of(SHARING, ("ash", "ash"), fedlit.Mean())

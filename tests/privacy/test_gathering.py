"""The coordinator's side and the sites', without training: who leaves, who lies, what a rule makes
of a sum, and what privacy cannot be had with: refused by name, and nothing is sent.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from privacy.test_masking import KEYS, PUBLICS, REGISTERED, SITES
from torch import Tensor

import fedlit
from fedlit import CFL, IFCA, GrowForest, Mean, Newton
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.ahead import SUM
from fedlit.exchange.questions import AnswerForm, Own
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.wire import pack, question_to, unpack
from fedlit.privacy.client_level import epsilon, noised
from fedlit.privacy.coordinator import Gathering
from fedlit.privacy.keys import Pairs, fingerprint_of, registered_key
from fedlit.privacy.ledger import TOGETHER, Ledger
from fedlit.privacy.masking import largest, layout_of
from fedlit.privacy.received import Received
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.site import Shield
from fedlit.privacy.terms import refuse
from fedlit.sharing import Sharing

ID = "0123456789abcdef" * 2
FORMS: dict[str, tuple[str, tuple[int, ...]]] = {"w": ("float32", (3,)), "b": ("float32", ())}
NAMES = dict.fromkeys(SITES, ("w", "b")) | {"dune": ("w",)}
SHARING = Sharing(NAMES, NAMES, FORMS)
WIDE = Sharing(dict.fromkeys(SITES, ("w",)), dict.fromkeys(SITES, ("w",)), {"w": FORMS["w"]})
"""Without what only some have."""
STARTS = {"w": torch.zeros(3), "b": torch.zeros(())}
MASKED = Privacy(masked=Masked())
MEAN = fedlit.Mean()


def states(seed: int = 8) -> dict[str, Update]:
    random = torch.Generator().manual_seed(seed)
    return {
        site: Update({"w": torch.randn(3, generator=random)}, rows=9 + k)
        for k, site in enumerate(SITES)
    }


def shields(
    folder: Path, rule: Rule = MEAN, privacy: Privacy = MASKED, sharing: Sharing = WIDE
) -> dict[str, Shield]:
    own = {
        site: Shield(
            site,
            privacy,
            rule,
            Ledger(folder / site, ID),
            lambda number: sharing.names,
            REGISTERED[site],
        )
        for site in SITES
    }
    offers = {site: unpack(pack(shield.offer())) for site, shield in own.items()}
    for site, shield in own.items():
        shield.meet(offers, sharing, {name: STARTS[name] for name in sharing.names[site]})
    return own


class Sites:
    """Sites as a coordinator reaches them."""

    def __init__(
        self, own: Mapping[str, Shield], number: int = 0, unfit: tuple[str, ...] = ()
    ) -> None:
        self.shields = own
        self.number = number
        self.flags = {
            site: (site not in unfit, shield.flags(number, fit=site not in unfit))
            for site, shield in own.items()
        }

    def __call__(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for site, question in questions.items():
            told[site] = unpack(
                pack(self.shields[site].answer(self.number, unpack(pack(question))))
            )
        return told

    def gathering(self, rule: Rule = MEAN, sharing: Sharing = WIDE, put: Any = None) -> Gathering:
        assert MASKED.masked is not None
        return Gathering(MASKED.masked, rule, sharing, self.number, self.flags, put or self)


def sent(folder: Path, seed: int = 8, unfit: tuple[str, ...] = ()) -> Sites:
    """Behind what all of them have sent, but for those that are not fit."""
    own = shields(folder)
    for site, update in states(seed).items():
        if site not in unfit:
            assert not own[site].unfit(0, update) and own[site].send(0, update).state == {}
    return Sites(own, unfit=unfit)


def test_a_sum_is_over_the_whole_cohort(tmp_path: Path) -> None:
    sites = sent(tmp_path)
    gathering = sites.gathering()
    ((_, update),) = gathering.gather().items()
    assert gathering.sites == list(SITES)
    exact = torch.stack([states()[site].state["w"].double() for site in SITES]).mean(0)
    assert torch.allclose(update.state["w"].double(), exact, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("asked", SITES)
def test_no_site_sends_for_a_sum_without_one_that_is_unfit(asked: str, tmp_path: Path) -> None:
    """dune proves that it is unfit: a coordinator may have brought that about, to see the sum of
    the others."""
    sites = sent(tmp_path, unfit=("dune",))
    flags = sites.gathering()._flags_for(asked)
    with pytest.raises(RunError, match="without dune, whose update is unfit; nothing was sent"):
        sites({asked: {"flags": flags}})
    assert not sites.shields[asked].answered(0)


def test_a_site_sends_nothing_for_a_sum_that_it_did_not_draw(tmp_path: Path) -> None:
    """A coordinator calls a site unfit, or absent, to get a second sum, whose difference is that
    site's update."""
    sites = sent(tmp_path)
    gathering = sites.gathering()
    flags = gathering._flags_for("ash")
    for lie in (
        flags | {"dune": [False, flags["dune"][1]]},
        {site: own for site, own in flags.items() if site != "dune"},
    ):
        with pytest.raises(RunError, match="nothing was sent"):
            sites({"ash": {"flags": lie}})
    gathering.gather()


def test_a_round_is_masked_once_also_from_an_earlier_checkpoint(tmp_path: Path) -> None:
    """dune says after a restart that it is unfit: the others have sent their part of the sum with
    it."""
    total = sent(tmp_path).gathering().gather()[SUM].state["w"]
    # the bytes of before
    assert torch.equal(sent(tmp_path, seed=9).gathering().gather()[SUM].state["w"], total)
    with pytest.raises(RunError, match="without dune"):
        sent(tmp_path, unfit=("dune",)).gathering().gather()


def test_who_has_a_tensor_does_not_change_from_round_to_round(tmp_path: Path) -> None:
    """A coordinator that says after a restart that dune lacks a tensor, to see the sum of the
    others."""
    sent(tmp_path).gathering().gather()
    lie = Sharing({**WIDE.names, "dune": ()}, {**WIDE.parameters, "dune": ()}, WIDE.forms)
    told = shields(tmp_path, sharing=lie)
    for site, shield in told.items():
        shield.receive(0, {"w": torch.ones(3)})
        shield.send(1, states()[site])
    with pytest.raises(RunError, match="expected each site to federate what it did before"):
        Sites(told, 1).gathering(sharing=lie).gather()


@pytest.mark.parametrize("gone", [*TOGETHER, ("memory.db", "received.db")])
def test_files_that_were_made_together_are_refused_apart(
    gone: str | tuple[str, ...], tmp_path: Path
) -> None:
    Ledger(tmp_path / "ash", ID)  # nothing was sent yet, and nothing received
    names = [gone] if isinstance(gone, str) else gone
    for name in names:
        (tmp_path / "ash" / name).unlink()
    with pytest.raises(RunError, match=names[0]):
        Ledger(tmp_path / "ash", ID)
    assert not any((tmp_path / "ash" / name).exists() for name in names)


def test_a_flipped_bit_in_the_ledger_is_refused_by_name(tmp_path: Path) -> None:
    """The highest bits of the table's description: none of these texts is one any more."""
    Ledger(tmp_path / "ash", ID).charge(0, 0, "curvature", "a", 5, times=2, most=5)
    path = tmp_path / "ash" / "memory.db"
    whole = path.read_bytes()
    first = whole.index(b"CREATE TABLE")
    for place in range(first - 20, first + 92):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        try:
            assert Ledger(tmp_path / "ash", ID).count("curvature") == 1  # a byte that means nothing
        except ConfigError as error:
            assert "memory.db" in str(error)


def test_a_question_counts_once_at_a_site_that_begins_again(tmp_path: Path) -> None:
    def ask(place: int, number: int = 0, form: str = "a", elements: int = 5) -> None:
        account = Ledger(tmp_path / "ash", ID)  # as after a restart
        account.charge(number, place, "curvature", form, elements, times=2, most=5)

    ask(0)
    ask(0)
    ask(1)
    with pytest.raises(RunError, match="curvature"):
        ask(2)
    with pytest.raises(RunError, match="curvature"):
        ask(1, form="another")
    ask(1)  # what was answered before is answered again
    ask(0, number=1)
    with pytest.raises(RunError, match="curvature"):
        ask(1, number=1, elements=6)
    assert Ledger(tmp_path / "ash", ID).count("curvature") == 3
    assert Ledger(tmp_path / "ash", "f" * 32).count("curvature") == 0


def test_a_repeated_question_is_answered_once(
    tmp_path: Path,
) -> None:
    rule = Newton(of="all")
    asked = list[Own]()
    own = shields(tmp_path, rule)

    def answer(question: Any) -> dict[str, Tensor]:
        asked.append(question)
        return {"value": torch.tensor(float(len(asked)))}

    def put(number: int, at: float, unfit: tuple[str, ...] = ()) -> Any:
        flags = Sites(own, number, unfit).gathering(rule)._flags_for("ash")
        question = question_to(Own("curvature", {"at": torch.full((1,), at)}))
        return own["ash"].answer(number, {"flags": flags, "n": 0, "question": question}, answer)

    first = put(0, 1.0)
    second = put(0, 1.0)
    assert torch.equal(first["state"]["value"], second["state"]["value"]) and len(asked) == 1
    with pytest.raises(RunError, match="expected to be asked again for the same answer"):
        put(0, 2.0)
    with pytest.raises(RunError, match="without dune"):
        put(3, 1.0, ("dune",))


def total_after(folder: Path, dune: Any, others: Any) -> Tensor:
    """The sum of a round before which dune was told something else than the others."""
    own = shields(folder)
    for site, update in states().items():
        own[site].receive(0, {"w": torch.ones(3)})
        own[site].receive(1, dune if site == "dune" else others)
        own[site].send(2, update)
    return Sites(own, number=2).gathering().gather()[SUM].state["w"]


def test_no_sum_where_one_site_was_sent_nothing(tmp_path: Path) -> None:
    """It goes on from its own state. The others repeat their updates if they are sent the old
    values again."""
    old = {"w": torch.ones(3)}
    assert torch.equal(total_after(tmp_path / "a", old, old), total_after(tmp_path / "b", {}, {}))
    for number, (dune, others) in enumerate([({}, old), (old, {}), ({"w": torch.zeros(3)}, old)]):
        with pytest.raises(RunError, match="masks that cancel"):
            total_after(tmp_path / str(number), dune, others)


def test_no_sum_where_one_site_was_told_other_facts(tmp_path: Path) -> None:
    own = shields(tmp_path)
    offers = {site: shield.offer() for site, shield in own.items()}
    for site, update in states().items():
        own[site].meet(offers, WIDE, {"w": STARTS["w"]}, partial(str, site == "dune"))
        own[site].send(0, update)
    with pytest.raises(RunError, match="masks that cancel"):
        Sites(own).gathering().gather()


def test_no_sum_where_one_site_was_asked_something_else_before(tmp_path: Path) -> None:
    """What a site answers may depend on it: where the others keep empty nodes alone, a sum is one
    site's counts."""
    rule = GrowForest(summed=True)
    own = shields(tmp_path, GrowForest(summed=True))
    flags = Sites(own).gathering(rule)

    def put(place: int, at: Callable[[str], float]) -> list[Tensor]:
        words = []
        for site in SITES:
            question = question_to(Own("forest/counts", {"low": torch.tensor([at(site)])}))
            asked = {"flags": flags._flags_for(site), "n": place, "question": question}
            found = own[site].answer(
                0, asked, lambda question: {"left": torch.ones(1, dtype=torch.int64)}
            )
            words.append(found["state"]["left"])
        return words

    assert sum(put(0, lambda site: 1.0)) == len(SITES)
    put(1, lambda site: float(site == "dune"))
    assert sum(put(2, lambda site: 3.0)) != len(SITES)


def test_what_was_received_is_kept_as_long_as_a_site_may_go_back(tmp_path: Path) -> None:
    received = Received(tmp_path / "ash", ID, STARTS)
    assert torch.equal(received.before(0)["w"], torch.zeros(3)) and received.told(0) == {}
    received.put(0, {"w": torch.ones(3), "down/x": torch.ones(1)})
    received.put(1, {"b": torch.ones(())})
    again = Received(tmp_path / "ash", ID, STARTS)
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
        value: shield.unfit(0, Update({"w": torch.tensor([value, 0, 0])}))
        for value in (2.0, 2.01, math.nan, math.inf)
    }
    assert unfit[2.0] == "" and "is 2.01 long, the bound is 2" in unfit[2.01]
    assert unfit[math.inf] == unfit[math.nan] == "its update is not finite"
    shield.receive(0, {"w": torch.tensor([2.0, 0, 0])})
    assert not shield.unfit(1, Update({"w": torch.tensor([3.9, 0, 0])}))


@pytest.mark.parametrize("rule", [MEAN, Mean("rows")])
def test_an_update_that_whole_numbers_cannot_hold_is_unfit(rule: Rule, tmp_path: Path) -> None:
    shield = shields(tmp_path, rule)["ash"]
    most = largest(bits=32, sites=4) / (9 if "rows" in rule.needs else 1)
    unfit = {
        share: shield.unfit(0, Update({"w": torch.tensor([share * most, 0, 0])}, 9))
        for share in (0.99, 1.01)
    }
    assert unfit[0.99] == "" and "is the most that 32 bits leave" in unfit[1.01]


def test_noise_of_a_round_that_has_no_sum_costs_nothing(tmp_path: Path) -> None:
    both = Privacy(masked=Masked(), client_level=ClientLevel(clip=1.0, noise=2.0))
    own = shields(tmp_path, privacy=both)
    for site, update in states().items():
        own[site].send(0, update)
    with pytest.raises(RunError, match="without dune"):
        Sites(own, unfit=("dune",)).gathering().gather()
    assert own["ash"].epsilon == 0
    Sites(own).gathering().gather()
    assert own["ash"].epsilon == epsilon([2.0], 1e-5)


def test_another_name_of_the_federation_finds_the_same_memory(tmp_path: Path) -> None:
    level = ClientLevel(clip=1.0, noise=2.0, answers=2)
    shield = shields(tmp_path, privacy=Privacy(client_level=level))["ash"]
    own = states()["ash"]
    noised = shield.send(0, own).state["w"]
    assert torch.equal(shield.send(0, own).state["w"], noised)

    def under(name: str) -> Shield:
        other = Shield(
            "ash", shield.privacy, shield.rule, Ledger(tmp_path / "ash", name), lambda number: SITES
        )
        other.meet({"ash": other.offer()}, WIDE, {"w": STARTS["w"]})
        return other

    other = under("f" * 32)  # a person has accepted that federation
    other.send(0, own)
    assert other.epsilon == epsilon([2.0] * 2, 1e-5)
    with pytest.raises(RunError, match="expected at most 2 noised answers of this site"):
        under("e" * 32).send(0, own)


LEVEL = Privacy(client_level=ClientLevel(1, 1))
ONE = {"w": torch.ones(2)}


def shares(forms: Any = None, parameters: Any = NAMES) -> Sharing:
    return Sharing(NAMES, parameters, forms or SHARING.forms)


def ask(
    privacy: Privacy, rule: Rule, sharing: Sharing = SHARING, taking_part: int = 4, **more: Any
) -> None:
    refuse(privacy, rule, sharing, taking_part=taking_part, **more)


RSA = rsa.generate_private_key(65537, 2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (partial(ClientLevel, clip=0, noise=1), "clip"),
    (partial(ClientLevel, clip=1, noise=0), "noise"),
    (partial(ClientLevel, clip=1, noise=1, delta=1), "delta"),
    (partial(ClientLevel, clip=1, noise=1, answers=0), "answers"),
    (partial(Masked, bits=60), "bits"),
    (partial(Masked, least=2), "least"),
    (partial(Masked, norm=0), "norm"),
    # rules that need more than a sum, and settings by which more would leave than is covered
    *((partial(ask, MASKED, rule), type(rule).__name__) for rule in (IFCA(2), CFL(), GrowForest(), Newton("others"))),
    (partial(ask, MASKED, MEAN, taking_part=2), "exchange.part"),
    (partial(ask, MASKED, Mean("rows")), "the same tensors"),
    (partial(ask, MASKED, MEAN, published={"p": 1}), "p would travel"),
    (partial(ask, LEVEL, Newton()), "Newton"),
    (partial(ask, LEVEL, MEAN, shares({"w": ("int64", (3,)), "b": ("float32", ())})), "w"),
    (partial(ask, LEVEL, MEAN, shares(parameters=dict.fromkeys(SITES, ("w",)))), "buffers .*b"),
    (partial(layout_of, SHARING, ("ash", "birch", "dune"), MEAN), "b: .*found ash, birch"),
    (partial(layout_of, SHARING, ("ash", "ash"), MEAN), "found ash"),
    # answers that have no promise
    *((partial(noised, state, before, ClientLevel(clip=0.5, noise=2.0)), key) for state, before, key in (
        ({"n": torch.ones(2).long()}, {"n": torch.ones(2).long()}, "n: "), (ONE, {}, "w: .*nothing"),
        (ONE, {"w": torch.ones(3)}, "w: "), ({"w": torch.tensor([1.0, math.nan])}, ONE, "finite"))),
    # keys
    (partial(Pairs, "ash", X25519PrivateKey.generate(), PUBLICS, "made"), "its own key"),
    (partial(Pairs("ash", KEYS["ash"], {**PUBLICS, "birch": bytes(32)}, "made").key, "birch"), "site "
        "'birch'"),
    (partial(fingerprint_of, "nothing"), "public key"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "key"), REFUSED)
def test_what_privacy_cannot_be_had_with(make: Callable[[], Any], key: str) -> None:
    with pytest.raises(FedlitError, match=key):
        make()


@pytest.mark.parametrize("content", [RSA, b"nothing"])
def test_other_keys_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "site.key").write_bytes(content)
    with pytest.raises(ConfigError, match="key"):
        registered_key(tmp_path / "site.key")


MISSHAPEN: list[Any] = [
    {},
    {"state": [1]},
    {"state": {"w": 1}},
    {"state": {"w": torch.zeros(3)}},
    {"state": {"w": torch.zeros(3).long(), "sum/0": torch.zeros(2).long()}},
    {"state": {"w": torch.zeros(4).long(), "sum/0": torch.zeros(1).long()}},
]


@pytest.mark.parametrize("message", MISSHAPEN)
def test_a_message_of_another_form_is_refused_with_its_site(
    message: dict[str, Any], tmp_path: Path
) -> None:
    sites = sent(tmp_path)
    with pytest.raises(RunError, match="site 'birch'"):
        sites.gathering(put=lambda asked: sites(asked) | {"birch": message}).gather()


@pytest.mark.parametrize(
    "asked", [{}, {"n": 0}, {"n": "0", "question": {}}, {"n": -1, "question": {}}, {"flags": 3}]
)
def test_a_question_of_another_form_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    shield = shields(tmp_path)["ash"]
    shield.send(0, states()["ash"])
    with pytest.raises(RunError, match="round 1"):
        shield.answer(0, asked)


def test_answers_that_are_to_be_summed_are_told_to_nobody_singly(tmp_path: Path) -> None:
    own = shields(tmp_path, rule := Newton(of="all"))
    shield = own["ash"]
    flags = Sites(own).gathering(rule)._flags_for("ash")
    with pytest.raises(RunError, match="curvature"):
        shield.refuse_single(Own("curvature", {}))
    shield.refuse_single(Own("another", {}))
    with pytest.raises(RunError, match="Newton"):
        shield.answer(
            0, {"flags": flags, "n": 0, "question": question_to(Own("another", {}))}, lambda own: {}
        )


@pytest.mark.parametrize(
    "lie", [{}, {"value": ["float64", [2]]}, {"value": ["float64", [1]], "more": ["int64", []]}]
)
def test_a_masked_answer_of_another_form_names_its_site(
    lie: dict[str, Any], tmp_path: Path
) -> None:
    own = shields(tmp_path, rule := Newton(of="all"))

    def put(questions: Any) -> Any:
        honest = {"value": ["float64", [1]]}
        return {
            site: {"state": {}, "forms": lie if site == "dune" else honest} for site in questions
        }

    question = Own("curvature", {}, {"value": AnswerForm(("float64",), (1,))})
    ask = Sites(own).gathering(rule, put=put).asking(lambda asked: {})
    with pytest.raises(RunError, match="dune"):
        ask(dict.fromkeys(own, question))

"""Terms that a site agrees to: what weakens them is asked about again, or refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from site_messages import FORMS, SITES, TERMS

from fedlit import GrowForest
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import InputRange, Losses, Own
from fedlit.institutions.accepted import accepted, given_up, keep, refuse_lost
from fedlit.institutions.consent import Consent
from fedlit.institutions.joining import consent
from fedlit.institutions.terms import Terms
from fedlit.privacy.ledger import Ledger
from fedlit.seeding import derive_seed


def test_any_change_of_terms_is_asked_about_again(tmp_path: Path) -> None:
    first = Terms("north", {"address": "a:1"}, {"columns": {"columns": {"age": "numbers"}}}, FORMS)
    assert not accepted(tmp_path, first)
    keep(tmp_path, first)
    assert accepted(tmp_path, first)
    changes: list[dict[str, Any]] = [
        {"coordinator": {"address": "b:1"}}, {"facts": {}}, {"tensors": {"w": ("float32", (3,))}}, {"rows": 5},
        {"scores": True},
    ]  # fmt: skip
    changed = [replace(first, **own) for own in changes]
    assert (
        not any(accepted(tmp_path, own) for own in changed)
        and len({own.hash for own in (first, *changed)}) == 6
    )


MASKS: dict[str, Any] = {"bits": 32, "norm": 10.0, "least": 4}


NOISE: dict[str, Any] = {"clip": 1.0, "noise": 2.0, "delta": 1e-5, "answers": 9}


BOTH = {"masked": MASKS, "client_level": NOISE}


KNOWN = {"id": "0123456789abcdef" * 2, "sites": SITES}


STRONG = replace(TERMS, federation=KNOWN, protection=("masked sums",), privacy=BOTH)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, ("masks", "noise")),
        ({"client_level": NOISE}, ("masks",)),
        ({"masked": MASKS}, ("noise",)),
        ({**BOTH, "client_level": {**NOISE, "noise": 1.0}}, ("noise",)),
        ({**BOTH, "client_level": {**NOISE, "answers": None}}, ("noise",)),
        ({**BOTH, "masked": {**MASKS, "norm": None}}, ("norm",)),
        ({**BOTH, "masked": {**MASKS, "least": 3}}, ("least",)),
    ],
)
def test_weaker_protection_needs_more_than_a_hash(
    now: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    site: Any = SimpleNamespace(
        settings=SimpleNamespace(folder=tmp_path, file=tmp_path / "site.yaml")
    )
    lines: list[str] = []
    consent(site, STRONG, [STRONG.hash], lines.extend)
    weak = replace(STRONG, protection=(), privacy=now)
    for without in ((), words[1:], ("peers",)):
        with pytest.raises(ConfigError, match=" ".join(f"--without {word}" for word in words)):
            consent(site, weak, [weak.hash], lines.extend, without=without)
    assert not accepted(tmp_path, weak)
    consent(site, weak, [weak.hash], lines.extend, without=words)
    assert accepted(tmp_path, weak) and "-   masked sums" in lines
    consent(site, weak, [], lines.extend)  # once
    assert accepted(tmp_path, STRONG)


def test_weaker_terms_after_stronger_ones_are_asked_again(
    tmp_path: Path,
) -> None:
    """Also those that name no federation, or another one, of the same coordinator."""
    plain = replace(STRONG, privacy={})
    keep(tmp_path, plain)
    assert accepted(tmp_path, plain)
    keep(tmp_path, STRONG)
    for own in (
        plain,
        replace(plain, federation={}),
        replace(plain, federation={**KNOWN, "id": "f" * 32}),
    ):
        assert not accepted(tmp_path, own) and given_up(tmp_path, own) == ("masks", "noise")


def test_the_ledger_refuses_weaker_protection_by_itself(tmp_path: Path) -> None:
    """As where somebody has deleted what was accepted."""
    Ledger(tmp_path / "privacy", STRONG.identity).open(BOTH, SITES)
    ledger = Ledger(tmp_path / "privacy", STRONG.identity)
    assert given_up(tmp_path, replace(STRONG, privacy={"masked": MASKS})) == ("noise",)
    with pytest.raises(RunError, match="without noise"):
        ledger.open({"masked": MASKS}, SITES)
    assert ledger.account["protection"] == BOTH
    ledger.open({"masked": MASKS}, SITES, without=["noise"])
    Ledger(tmp_path / "privacy", "f" * 32).open({}, SITES)


@pytest.mark.parametrize("terms", [TERMS, STRONG])
def test_an_accepted_federation_without_its_ledger_is_refused(terms: Terms, tmp_path: Path) -> None:
    refuse_lost(tmp_path, terms)
    keep(tmp_path, terms)
    with pytest.raises(RunError, match=r"memory\.db"):
        refuse_lost(tmp_path, terms)
    Ledger(tmp_path / "privacy", terms.identity)
    refuse_lost(tmp_path, terms)


def test_nothing_is_told_or_answered_that_was_not_agreed_to() -> None:
    facts = {"columns": {"age": "numbers"}, "categories": {"town": ["Aachen", "Bonn"]}}
    questions = dict.fromkeys(("losses", "forest/counts"), QuestionTerms())
    consent = Consent(Terms("north", {}, {"values": facts}, FORMS, questions=questions))
    consent.check("values", {"categories": {"town": ["Aachen", "Bonn"]}})  # a part of it
    consent.check_update(FORMS, {})
    consent.check_question(Losses([{}]))
    consent.check_question(Own("forest/counts", {}))
    for topic, more in (
        ("values", {"categories": {"town": ["Aachen", "Celle"]}}), ("values", {"moments": {"age": [1, 2, 3]}}),
        ("rows", {"train": 5}),
    ):  # fmt: skip
        with pytest.raises(RunError, match="nothing of it was sent"):
            consent.check(topic, more)
    with pytest.raises(RunError, match="head"):
        consent.check_update({"head": ("float32", (2,))}, {})
    for question in (InputRange(), Own("forest/ranges", {}), Own("anything at all", {})):
        with pytest.raises(RunError, match="nothing was answered"):
            consent.check_question(question)
    with pytest.raises(RunError, match="nothing was answered"):
        Consent(TERMS).check_question(Losses([{}]))


def test_a_forest_is_asked_within_the_limits_that_were_agreed_to() -> None:
    rule = GrowForest(trees=5, minimum=20, summed=True)
    bounds = rule.facts.questions["forest/start"]
    said = {**bounds.values, "seed": derive_seed(7, "forest")}

    def start(**changes: Any) -> Own:
        values = {**said, **changes}.items()
        return Own("forest/start", {key: torch.from_numpy(np.array(own)) for key, own in values})

    bounds.check(start(), seed=7)
    for changes in ({"minimum": 1}, {"summed": False}, {"levels": 1000}, {"seed": 5}, {"more": 1}):
        with pytest.raises(RunError, match=rf"forest/start.*{next(iter(changes))}"):
            bounds.check(start(**changes), seed=7)
    assert "forest/ranges" not in rule.facts.questions
    thresholds = Own("forest/counts", {"thresholds": torch.zeros(4, 20_000, 25)})
    with pytest.raises(RunError, match=r"forest/counts.*thresholds"):
        rule.facts.questions["forest/counts"].check(thresholds)


@pytest.mark.parametrize("masked", [False, True])
def test_terms_name_each_key_once_in_eighty_columns(masked: bool) -> None:
    keys = {site: f"SHA256:{site[0] * 43}" for site in ("east", "south")}
    lines = replace(TERMS, peers=keys, masked=masked).lines()
    assert all(sum(key in line for line in lines) == 1 for key in keys.values())
    assert max(map(len, lines)) <= 80 and not any("[" in line for line in lines[:8])

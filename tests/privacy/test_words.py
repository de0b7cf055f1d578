from __future__ import annotations

from pathlib import Path

import pytest

import fedlit
from fedlit.exchange.rules import GrowForest
from fedlit.privacy.client_level import NOT_COVERED, epsilon, noise_to_signal
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.words import MASKED_NOT_COVERED, lines

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_plan_says_the_price_and_what_is_not_covered() -> None:
    assert lines(Privacy(), fedlit.Mean(), 30, 3, 2_500) == []
    level = Privacy(client_level=ClientLevel(clip=0.5, noise=2.0, answers=30))
    said = "\n".join(lines(level, fedlit.Mean(), 30, 3, 2_500))
    assert f"ε = {epsilon([2.0] * 30, 1e-5):.3g} at δ = 1e-05 after 30 rounds" in said and "at most 30 answers" in said
    assert f"is {noise_to_signal(2_500, 3, 2.0):.3g} times as long" in said and all(own in said for own in NOT_COVERED)
    masked = "\n".join(lines(Privacy(Masked(norm=5.0)), GrowForest(summed=True), 30, 3, 0))
    assert "at most 5 long" in masked and "forest/counts, forest/totals; others as they are" in masked
    assert all(own in masked for own in MASKED_NOT_COVERED)
    assert "no bound is set" in "\n".join(lines(Privacy(Masked(), ClientLevel(1.0, 1.0)), fedlit.Mean(), 1, 3, 8))


def test_the_prices_on_the_page_are_those_that_are_computed() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| sites | values")) + 2
    rows = [line.strip("| ").replace(",", "").split(" | ") for line in lines[start : start + 5]]
    for sites, values, noise, rounds, spent, ratio in ([float(cell) for cell in row] for row in rows):
        assert epsilon([noise] * int(rounds), 1e-5) == pytest.approx(spent, rel=0.01)
        assert noise_to_signal(int(values), int(sites), noise) == pytest.approx(ratio, rel=0.04)

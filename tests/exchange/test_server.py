"""One round, whatever order updates arrive in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import make_run

from fedlit.exchange.outcome import BEGIN, Outcome
from fedlit.exchange.questions import Answerer, Question
from fedlit.exchange.rules import CFL, IFCA, FedGMCC, Mean, Rule
from fedlit.exchange.server import Server

RULES: dict[str, Any] = {
    "mean by rows": lambda: Mean("rows"),
    "cfl": lambda: CFL(9.0, 1e-6),
    "ifca, drawn": lambda: IFCA(3, "drawn"),
    "fedgmcc": lambda: FedGMCC(8, 3, grid=4, inputs="range", outputs="raw", epsilon="barriers"),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_arrival_means_nothing(rule: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, align="both", exchange={"federated": ["core"]})
    run.describe()
    federation, exchange = run.loop.federation, run.exchange
    noise = torch.Generator().manual_seed(3)
    start = {name: exchange.collect(federation, client) for name, client in federation.items()}
    moved = {
        name: replace(own, state={key: v + 0.3 * torch.randn(v.shape, generator=noise) for key, v in own.state.items()})
        for name, own in start.items()
    }

    def ask(questions: Mapping[str, Question]) -> dict[str, Any]:
        parameters = exchange.sharing.parameters
        return {
            name: Answerer(federation[name], parameters[name], federation.rows(name))(question)
            for name, question in questions.items()
        }

    def outcome(own: Rule, backwards: bool) -> Outcome:
        blueprint = exchange._blueprint
        server = Server(
            own,
            8,
            1,
            model=lambda name: blueprint(federation, name),
            sharing=exchange.sharing,
            device=federation.device,
        )
        order = reversed if backwards else iter
        server.round(BEGIN, dict(order(list(start.items()))), ask, measure=False)  # type: ignore[operator]
        return server.round(0, dict(order(list(moved.items()))), ask, measure=True)  # type: ignore[operator]

    one, other = outcome(RULES[rule](), False), outcome(RULES[rule](), True)
    assert one.received.keys() == other.received.keys() == set(start)
    for name, state in one.received.items():
        assert state.keys() == other.received[name].keys() and state
        assert all(torch.equal(value, other.received[name][key]) for key, value in state.items())
    assert one.clustering == other.clustering and one.bytes == other.bytes
    assert {key: float(value) for key, value in one.records.items()} == {
        key: float(value) for key, value in other.records.items()
    }

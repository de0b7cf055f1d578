"""What clients answer, from their own rows; what is known of their networks without asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import make_run
from torch import nn

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError
from fedlit.exchange.outcome import Asked
from fedlit.exchange.questions import Answerer, InputRange, Losses, Own
from fedlit.exchange.rule import Facts
from fedlit.exchange.rules import Round, Rule
from fedlit.sharing import State


def test_what_a_client_is_asked_is_what_it_has(tmp_path: Path) -> None:
    run = make_run(tmp_path, align="both", exchange={"federated": ["encoder", "core", "head"]})
    run.fit(quiet=True)
    client = run.loop.federation["birch"]
    names = run.exchange.sharing.parameters["birch"]
    rows = run.loop.federation.rows("birch")
    answerer = Answerer(client, names, rows)
    asked = Asked(
        lambda questions: {name: answerer(question) for name, question in questions.items()}, run.exchange.sharing
    )
    other = {name: value + 0.5 for name, value in client.federated.items()}
    client.train()
    losses = asked({"birch": Losses([dict(client.federated), {**other, "of.others": torch.zeros(9)}])})["birch"]
    assert all(module.training for module in client.modules())  # as it was
    client.eval()
    with torch.no_grad():
        expected = [nn.functional.cross_entropy(client(rows.x), rows.y)]
        client.load_state_dict(other, strict=False)
        expected.append(nn.functional.cross_entropy(client(rows.x), rows.y))
    torch.testing.assert_close(losses, torch.stack(expected))
    low, high = asked({"birch": InputRange()})["birch"]
    assert torch.equal(low, rows.x.amin(0)) and torch.equal(high, rows.x.amax(0))
    sent = 2 * sum(value.numel() for value in other.values()) * 4
    assert asked.weigh({}, {}) == sent + 2 * 4 + 2 * rows.x.shape[1] * 4


def test_fresh_values_are_a_function_of_the_seed(tmp_path: Path) -> None:
    run = make_run(tmp_path, align="both", exchange={"federated": ["encoder", "core", "head"]})
    run.describe()
    federation = run.loop.federation
    blueprint = run.exchange._blueprint(federation, "birch")
    fresh = blueprint.fresh(17)
    assert fresh.keys() == set(federation["birch"].federated) == set(blueprint.names)
    assert not torch.equal(fresh["core.0.weight"], blueprint.fresh(18)["core.0.weight"])
    assert all(torch.equal(value, blueprint.fresh(17)[name]) for name, value in fresh.items())
    start = blueprint.fresh(run.seed)  # the run's own seed gives what everybody starts from
    assert all(torch.equal(value, start[name]) for name, value in federation["ash"].federated.items())


class Counts(FederatedClient):
    """A client without a network that answers how many of its rows are above a threshold, and keeps what all have."""

    automatic_optimization = False

    def __init__(self, spec: Any) -> None:
        super().__init__(spec, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(len(x), self.spec.num_outputs)

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        return None

    def configure_optimizers(self) -> None:
        return None

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        if topic != "above":
            return super().answer(topic, tensors, rows)
        return {"count": (rows.x[:, 0] > tensors["at"]).sum(), "drawn": torch.rand(2)}

    def on_receive(self, received: State) -> None:
        if received:
            self.state["total"] = received["down/total"]


class Sum(Rule):
    """Adds answers."""

    facts = Facts(by_questions=True)
    topic = "above"

    def __call__(self, round: Round) -> dict[str, State]:
        question = Own(self.topic, {"at": torch.tensor(0.5)})
        self.answers = [round.ask(dict.fromkeys(round.updates, question)) for _ in range(2)]
        total = torch.stack([own["count"] for own in self.answers[0].values()]).sum()
        return {name: {"down/total": total} for name in round.receivers}


def test_a_class_of_clients_answers_questions_of_its_own_and_shares_no_tensor(tmp_path: Path) -> None:
    run = make_run(tmp_path, loop={"client": Counts}, exchange={"rule": Sum()}, epochs=2)
    assert "no tensor of a network; rule Sum()" in str(run.describe())
    run.fit(quiet=True)
    federation, rule = run.loop.federation, run.exchange.rule
    expected = sum(int((federation.rows(name).x[:, 0] > 0.5).sum()) for name in federation)
    assert [int(own.state["total"]) for own in federation.values()] == [expected] * 3
    first, second = rule.answers
    assert not torch.equal(first["ash"]["drawn"], second["ash"]["drawn"])  # each question draws anew
    assert not torch.equal(first["ash"]["drawn"], first["birch"]["drawn"])
    # two rounds of three clients: two questions of 4 bytes, answered by 8 + 8, and a total of 8
    assert run.exchange.rounds == 2 and run.exchange.bytes == 2 * 3 * (2 * (4 + 16) + 8)


def test_a_question_that_nobody_can_answer_names_client_and_class(tmp_path: Path) -> None:
    rule = Sum()
    rule.topic = "below"
    run = make_run(tmp_path, loop={"client": Counts}, exchange={"rule": rule})
    with pytest.raises(ConfigError, match=r"client 'ash': expected a client that can answer 'below', found Counts"):
        run.fit(quiet=True)

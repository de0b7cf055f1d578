"""What clients answer, from their own rows; what is known of their networks without asking: their
federated part."""

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ASKING, METHODS, trained
from torch import nn

from fedlit import CNN, MLP, GlobalLayers
from fedlit.errors import ConfigError
from fedlit.exchange.answerer import Answerer
from fedlit.exchange.asked import Asked
from fedlit.exchange.function import function_of
from fedlit.exchange.questions import InputRange, Losses, wrong_answer


def test_what_a_client_is_asked_is_what_it_has(tmp_path: Path) -> None:
    run = trained(tmp_path, align="both", exchange={"federated": ["encoder", "core", "head"]})
    client = run.loop.federation["birch"]
    names = run.exchange.sharing.parameters["birch"]
    rows = run.loop.federation.rows("birch")
    answerer = Answerer(client, names, rows)
    asked = Asked(
        lambda questions: {name: answerer(question) for name, question in questions.items()},
        run.exchange.sharing,
    )
    other = {name: value + 0.5 for name, value in client.federated.items()}
    client.train()
    losses = asked(
        {"birch": Losses([dict(client.federated), {**other, "of.others": torch.zeros(9)}])}
    )["birch"]
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


@pytest.mark.parametrize("method", ["forest", "pooled logistic", "mixed model", "stratified cox"])
def test_clients_answer_in_the_forms_that_rules_declare(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics: set[str] = set()
    answered = Asked.__call__

    def watched(self: Asked, questions: Any) -> Any:
        answers = answered(self, questions)
        for client, question in questions.items():
            topics.add(question.topic)
            answer = answers[client]
            assert question.answers is not None and wrong_answer(question, answer) == ""
            assert wrong_answer(question, {**answer, "more": torch.zeros(1)})
            for name, value in answer.items():
                assert wrong_answer(question, {**answer, name: value[None]}).startswith(name)
                assert wrong_answer(question, {**answer, name: value.bool()}).startswith(name)
                assert wrong_answer(
                    question, {other: answer[other] for other in answer if other != name}
                )
        return answers

    monkeypatch.setattr(Asked, "__call__", watched)
    run = trained(tmp_path, **{**{**METHODS, **ASKING}[method], "epochs": 1})
    assert topics == set(run.exchange.rule.facts.questions)


@pytest.mark.parametrize(
    ("network", "patterns", "shape"),
    [
        (MLP(6, 3), ("encoder.", "core.", "head."), (6,)),
        (MLP(6, 3), ("core.",), (64,)),
        (GlobalLayers(6, 3, global_features=2, blocks=1, heads=2), ("core.",), (128,)),
        (CNN(16, 3, white=2.0), ("core.", "head."), (8, 4, 4)),
    ],
)
def test_the_function_is_the_federated_part(
    network: nn.Module, patterns: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    federated = [name for name, _ in network.named_parameters() if name.startswith(patterns)]
    rows: dict[tuple[int, ...], int] = {(6,): 6, (64,): 6, (128,): 6}
    function = function_of(network, rows.get(shape, 16), federated)
    assert function.shape == shape and function.parameters == tuple(federated)
    x = torch.rand(9, *shape)
    state = {
        name: value.detach() + 0.1 * torch.randn_like(value)
        for name, value in network.named_parameters()
    }
    network.load_state_dict({**network.state_dict(), **state})
    network.train()  # batch normalisation by the batch's own statistics; no dropout here
    expected = x
    for name in ("encoder", "core", "head"):
        expected = getattr(network, name)(expected) if name + "." in patterns else expected
    torch.testing.assert_close(function(state, x), expected)
    stacked = function.stacked(
        {name: torch.stack([state[name]] * 2) for name in federated}, torch.stack([x, x])
    )
    torch.testing.assert_close(stacked, torch.stack([expected, expected]), rtol=1e-4, atol=1e-5)


def test_the_function_holds_no_trained_private_value() -> None:
    fresh: Any = MLP(6, 3)
    function = function_of(fresh, 6, ["core.0.weight"])  # its bias is private
    trained = {"core.0.weight": torch.ones(64, 64)}
    expected = fresh.core[2](
        fresh.core[1](torch.ones(1, 64) @ torch.ones(64, 64) + fresh.core[0].bias)
    )
    torch.testing.assert_close(function(trained, torch.ones(1, 64)), fresh.core[3](expected))
    with pytest.raises(
        ConfigError, match=r"within encoder, core and head, found common\.x\.weight"
    ):
        function_of(fresh, 6, ["common.x.weight"])

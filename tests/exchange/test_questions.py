"""What clients answer, from their own rows; what is known of their networks without asking."""

from pathlib import Path

import torch
from federations import trained
from torch import nn

from fedlit.exchange.outcome import Asked
from fedlit.exchange.questions import Answerer, InputRange, Losses


def test_what_a_client_is_asked_is_what_it_has(tmp_path: Path) -> None:
    run = trained(tmp_path, align="both", exchange={"federated": ["encoder", "core", "head"]})
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

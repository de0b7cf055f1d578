"""What federated tensors stand for: columns, codes and labels, and which of them may be
averaged."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from torch import nn

from fedlit import MLP, FederatedClient, TabM
from fedlit.client.build import build_client
from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.meanings import Described, check_meanings, digests_of, find_meanings
from fedlit.nn.network import Network
from fedlit.sharing import resolve
from fedlit.spec import ClientSpec

AGE = Input("age", "age")
CREATININE = Input("crea", "crea")
WARD = Input("ward", "ward", ("a", "b"))


class Unnamed(Network):
    """A network of somebody else's that names no axes."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Linear(num_features, 3), nn.Linear(3, 3), nn.Linear(3, num_outputs))


class OfTwoColumns(Network):
    """A network that cannot be built for another number of columns."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        if num_features != 2:
            raise ValueError("expected two columns")
        super().__init__(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, num_outputs))


def spec(
    name: str, inputs: tuple[Input, ...], classes: tuple[Any, ...] = ("no", "yes")
) -> ClientSpec:
    features = tuple(each.name for each in inputs)
    return ClientSpec(name, features, classes, {"train": 10}, (), inputs=inputs)


def check(
    network: Any, specs: list[ClientSpec], patterns: list[str], by_name: list[str] | None = None
) -> Any:
    """Build clients and check what they would average; return what is known of it."""
    build = partial(FederatedClient, network=network)
    clients = {own.name: build(own) for own in specs}
    names = resolve(clients, patterns, by_name=by_name or []).names
    described = {own.name: Described(clients[own.name], own, names[own.name]) for own in specs}
    found = find_meanings(described, lambda other: build_client(build, other, seed=0))
    check_meanings(found.meanings)
    return found


@pytest.mark.parametrize(
    "network", [partial(MLP, hidden=[3, 3]), Unnamed], ids=["named axes", "no names"]
)
def test_columns_in_another_order_are_not_averaged(network: Any) -> None:
    north = spec("north", (AGE, CREATININE))
    south = spec("south", (CREATININE, AGE))
    with pytest.raises(ConfigError, match="encoder"):
        check(network, [north, south], ["*"])
    assert check(network, [north, replace(north, name="south")], ["*"]).meanings["north"]
    assert not check(network, [north, south], ["core"]).meanings["north"]


def test_codes_of_other_categories_are_not_averaged() -> None:
    other = replace(WARD, values=("b", "c"))
    sites = [spec("north", (AGE, WARD)), spec("south", (AGE, other))]
    mlp = partial(MLP, hidden=[3, 3])
    with pytest.raises(ConfigError, match="ward"):
        check(mlp, sites, ["encoder"])
    with pytest.raises(ConfigError, match="ward"):
        check(mlp, sites, ["encoder"], by_name=["*"])
    check(TabM, sites, ["encoder"], by_name=["*"])  # it embeds each category under its own name


def test_labels_in_another_order_are_not_averaged() -> None:
    sites = [
        spec("north", (AGE, WARD), ("a", "b", "c")),
        spec("south", (AGE, WARD), ("a", "c", "b")),
    ]
    for network in (partial(MLP, hidden=[3, 3]), Unnamed):
        with pytest.raises(ConfigError, match="head"):
            check(network, sites, ["*"])
    check(partial(MLP, hidden=[3, 3]), sites, ["head"], by_name=["*"])


def test_a_network_of_fixed_width_goes_by_shape() -> None:
    north = spec("north", (AGE, CREATININE))
    south = spec("south", (CREATININE, AGE))
    found = check(OfTwoColumns, [north, south], ["encoder", "core"])
    assert found.unknown["north"] == ["encoder.weight", "encoder.bias", "core.weight", "core.bias"]


def test_digests_compare_names_within_one_federation() -> None:
    meaning = {"inputs": ["age", "crea"]}
    digests = digests_of(meaning, "f" * 32)
    assert digests == digests_of({"inputs": ("age", "crea")}, "f" * 32)
    assert digests != digests_of(meaning, "e" * 32)
    assert digests != digests_of({"inputs": ["agecrea"]}, "f" * 32)
    assert "age" not in str(digests)


@pytest.mark.parametrize(
    "lie", [[], {"north": 3}, {"north": {"w": "x"}}, {"north": {"w": {"inputs": 3}}}]
)
def test_meanings_of_another_form_are_refused(lie: Any) -> None:
    with pytest.raises(ConfigError):
        check_meanings(lie)

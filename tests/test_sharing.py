"""Which tensors are federated: patterns, and what is refused before the first step."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ALIKE, Named, make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedlit import FedProx
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.run.run import Run
from fedlit.sharing import named_tensors, resolve, select
from fedlit.slices import named_axes
from fedlit.train.start import Start

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)


class Client(nn.Module):
    """Three parts of chosen widths; the core has a norm, and so float and integer buffers."""

    def __init__(self, inputs: int = 3, width: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, width)
        self.core = nn.ModuleDict({"wide": nn.Linear(width, width), "norm": nn.BatchNorm1d(width)})
        self.head = nn.Linear(width, outputs)


def tied() -> Client:
    client = Client(inputs=4)
    client.core["wide"].weight = client.encoder.weight
    return client


WIDE = ("core.wide.weight", "core.wide.bias")
CORE = (*WIDE, "core.norm.weight", "core.norm.bias")
BUFFERS = ("core.norm.running_mean", "core.norm.running_var")
TENSORS = [
    "encoder.blocks.0.norm.weight",
    "encoder.blocks.0.linear.weight",
    "encoder.blocks.10.norm.weight",
    "core.norm.weight",
    "core.linear.weight",
    "core.linear.bias",
    "core2.linear.bias",
    "head.bias",
]


@PROPERTY
@given(
    st.lists(st.sampled_from(TENSORS), unique=True),
    st.sampled_from(["core", "*norm*", "encoder.blocks.?"]),
)
def test_a_pattern_and_its_negation_share_the_names_out(names: list[str], pattern: str) -> None:
    chosen = select(names, [pattern])
    others = select(names, ["*", f"!{pattern}"])
    assert sorted(chosen + others) == sorted(names) and not set(chosen) & set(others)


def test_what_is_federated_of_clients_that_differ_elsewhere() -> None:
    clients = {"b": Client(inputs=7, outputs=5), "a": Client()}
    sharing = resolve(clients, ["core"])
    assert sharing.names == sharing.parameters == {
        "a": CORE,
        "b": CORE,
    } and sharing.all_names == list(CORE)
    assert resolve(clients, []).names == {"a": (), "b": ()}
    turned = dict(reversed(clients.items()))
    assert resolve(clients, ["core", "!*.bias"], "average") == resolve(
        turned, ["core", "!*.bias"], "average"
    )
    assert resolve({"a": Client(width=4), "b": Client(width=6)}, ["head.bias"]).all_names == [
        "head.bias"
    ]
    extra = Client()
    extra.core["extra"] = nn.Linear(2, 2)
    names = resolve({"a": Client(), "b": extra}, ["core.wide", "core.extra"]).names
    assert names == {"a": WIDE, "b": (*WIDE, "core.extra.weight", "core.extra.bias")}


@pytest.mark.parametrize("pattern", ["core", "*", "core.norm.*"])
def test_buffers_travel_on_request_and_integers_never(pattern: str) -> None:
    clients = {"a": Client(), "b": Client()}
    private = resolve(clients, [pattern], "private")
    average = resolve(clients, [pattern], "average")
    assert not any(name in private.names["a"] for name in BUFFERS)
    assert average.names["a"] == (*private.names["a"], *BUFFERS)  # parameters first
    assert average.parameters == private.parameters
    assert "core.norm.num_batches_tracked" in set(named_tensors(clients["a"])) - set(
        average.all_names
    )


def test_a_tied_tensor_travels_once_under_either_name() -> None:
    assert "core.wide.weight" in resolve({"a": tied()}, ["core"]).parameters["a"]
    names = resolve({"a": tied()}, ["*"]).names["a"]
    assert "encoder.weight" in names and "core.wide.weight" not in names


@pytest.mark.parametrize(
    ("clients", "patterns", "found"),
    [
        (
            {"a": Client()},
            ["encoder", "coer.*"],
            ["pattern 'coer.*'", "core, encoder, head", "'core'?"],
        ),
        ({"a": Client()}, ["core", "!core.nrom"], ["pattern '!core.nrom'"]),
        ({"a": Client()}, [""], ["pattern ''"]),
        (
            {"c": Client(width=6), "b": Client(), "a": Client()},
            ["core"],
            [
                "core.wide.weight: expected one shape",
                "(4, 4) on 'a' and (6, 6) on 'c'",
                "data.align: both",
            ],
        ),
        (
            {"a": Client(), "b": Client()},
            ["core.norm.running_mean"],
            ["pattern 'core.norm.running_mean'", "buffers"],
        ),
        (
            {"a": Client(), "b": Client()},
            ["*num_batches_tracked"],
            ["pattern '*num_batches_tracked'"],
        ),
        ({"a": Client()}, ["core", "!core"], ["cancel"]),
        (
            {"a": Client(), "b": Client(inputs=7), "c": Client(outputs=9)},
            ["encodr", "haed.*", "encoder", "head"],
            [
                "'encodr'",
                "'encoder'?",
                "'haed.*'",
                "'head'?",
                "encoder.weight: expected",
                "head.weight: expected",
            ],
        ),
    ],
)
def test_what_is_refused_all_in_one_message(
    clients: dict[str, Client], patterns: list[str], found: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"exchange\.federated, .* cannot be applied") as error:
        resolve(clients, patterns)
    assert all(part in str(error.value) for part in found) and "on 'b' and" not in str(error.value)


def test_shapes_of_buffers_clash_only_where_they_travel() -> None:
    clients = {"a": Client(), "b": Client()}
    for client, size in zip(clients.values(), (3, 5), strict=True):
        client.core.register_buffer("seen", torch.zeros(size))
    assert resolve(clients, ["core"]).names["a"] == CORE
    with pytest.raises(ConfigError, match=re.escape("core.seen: expected one shape")):
        resolve(clients, ["core"], "average")


# -------------------------------------------------- slices: values by hand, what travels, newcomers

NAMED = {"federated": ["*"], "by_name": ["*"]}


def named_run(
    folder: Path, clients: tuple[str, ...] = ALIKE[:3], client: Any = FederatedClient, **more: Any
) -> Run:
    loop = {"client": partial(client, network=Named), "start": more.pop("start", None)}
    return make_run(folder, clients=clients, loop=loop, exchange={**NAMED, **more}, epochs=1)


def test_a_slice_is_averaged_over_the_clients_that_have_its_name(tmp_path: Path) -> None:
    run = named_run(tmp_path)
    run.describe()
    clients = run.loop.federation
    with torch.no_grad():
        for value, client in enumerate(clients.values(), start=1):
            for parameter in client.parameters():
                parameter.fill_(float(value))
    run.loop.federation.exchange.exchange(run.loop.federation)
    # columns x0..x3 are at all three, x4 at ash (1) and cedar (3), x5 at cedar alone; birch has one
    # logit
    first = {
        name: client.state_dict()["encoder.0.weight"][0].tolist()
        for name, client in clients.items()
    }
    assert first == {"ash": [2, 2, 2, 2, 2], "birch": [2, 2, 2, 2], "cedar": [2, 2, 2, 2, 2, 3]}
    last = {name: client.state_dict()["head.bias"].tolist() for name, client in clients.items()}
    assert last == {"ash": [2, 2, 2], "birch": [2], "cedar": [2, 2, 2, 3]}
    assert all(float(client.state_dict()["core.bias"][0]) == 2 for client in clients.values())


@pytest.mark.parametrize(
    ("labels", "found"), [(("a", "a", "b"), "'a' twice"), (("a", "b"), "2 names")]
)
def test_names_that_do_not_fit_are_refused(labels: tuple[str, ...], found: str) -> None:
    linear = nn.Linear(2, 3)
    linear.axes = {"weight": (0, labels)}  # type: ignore[assignment]
    with pytest.raises(
        ConfigError,
        match=f"weight: expected 3 different names of slices along axis 0, found {found}",
    ):
        named_axes(nn.Sequential(linear))


def test_the_proximal_term_counts_slices(tmp_path: Path) -> None:
    run = named_run(tmp_path, client=partial(FedProx, mu=2.0))
    run.describe()
    ash = run.loop.federation["ash"]
    ash.on_receive({name: value - 1 for name, value in ash.federated.items()})
    x = torch.zeros(2, 5)
    y = torch.zeros(2, dtype=torch.long)
    expected = sum(value.numel() for value in ash.federated.values())  # each number is 1 away
    away = ash.objective(x, y) - ash.loss(ash(x), y)
    assert float(away.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_newcomer_takes_the_slices_that_the_run_has(tmp_path: Path) -> None:
    first = named_run(tmp_path / "first", ("ash", "birch"))
    first.fit(quiet=True)
    second = named_run(tmp_path / "second", start=Start(str(first.last_checkpoint)))
    second.describe()
    ash = first.loop.federation["ash"]
    cedar = second.loop.federation["cedar"]
    taken = cedar.state_dict()["encoder.0.weight"]
    theirs = ash.state_dict()["encoder.0.weight"]
    assert torch.equal(taken[:, :5], theirs) and not torch.equal(taken[:, 5], theirs[:, 4])
    assert any(
        "no client of the run has" in note and "x5" in note for note in second.loop.federation.notes
    )

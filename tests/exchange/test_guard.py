"""The guard: who is left out, who is named, and that the honest lose no bit by it."""

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Faulty, different, trained, weights

from fedlit import IFCA, FedAvgM, Mean
from fedlit.client import FederatedClient
from fedlit.exchange.columns import Columns
from fedlit.exchange.far import find_far, norms_of


def test_a_negative_variance_is_far() -> None:
    honest = {
        "core.1.running_var": torch.ones(3),
        "core.1.running_mean": torch.tensor([-1.0, 0.0, 1.0]),
    }
    worse = {**honest, "core.1.running_var": torch.tensor([1.0, -0.1, 1.0])}
    sent = {"ash": honest, "birch": honest, "cedar": worse}
    names, table = norms_of(Columns(sent), {}, ())
    assert names == ["core.1.running_mean", "core.1.running_var"]
    assert table.isinf().tolist() == [[[False, False], [False, False], [False, True]]] * 2
    assert not table.isnan().any()
    far = find_far(table, torch.tensor([False, False]), torch.ones(2), (), torch.ones(3))
    assert far.far.tolist() == [False, False, True]


def bad(fault: str) -> type[FederatedClient]:
    return type(f"Faulty_{fault}", (Faulty,), {"fault": fault})


RULES = {"mean": Mean, "rows": partial(Mean, "rows"), "momentum": FedAvgM, "ifca": partial(IFCA, 2)}


@pytest.mark.parametrize(
    ("fault", "rule", "every"),
    [
        ("1e8", "mean", "epoch"),
        ("-3e38", "momentum", "step"),
        ("state", "mean", "epoch"),
        ("1e37", "rows", "epoch"),
        ("update", "momentum", {"steps": 2}),
        ("1e8", "ifca", "epoch"),
    ],
)
def test_the_guilty_is_named(
    fault: str, rule: str, every: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = {"federated": ["core"], "rule": RULES[rule], "every": every}
    run = trained(tmp_path, client=bad(fault), exchange=exchange, epochs=2)
    assert set(run.exchange.incident_counts) == {"cedar"} and not run.exchange.not_finite
    # before the first exchange nothing was given: an update is not known to be large before the
    # second
    assert run.exchange.incident_counts["cedar"]["left_out"] >= run.exchange.rounds - (
        fault == "update"
    )
    told = [message for message in caplog.messages if "was left out" in message]
    assert told and all("'cedar'" in message for message in told)
    if fault == "update":
        return
    others = trained(tmp_path / "others", exchange=exchange, clients=("ash", "birch"), epochs=2)
    honest = {name: value for name, value in weights(run).items() if "cedar" not in name}
    assert different(honest, weights(others)) == []


NAN = math.nan
WIDE = [[0.25], [0.5], [1.0], [2.0]]
STEADY = [(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 0.1]))] * 3
# norms of clients' updates, one row a client → whom the guard finds far (X), names (n), or leaves
# in peace (.)
SIZES: list[tuple[list[list[float]], dict[str, Any], str]] = [
    # a robust z score of log sizes: over the lower median, the spread's floor is log 1.4, far
    # begins 6 spreads above
    ([[1.0], [1.1], [0.9], [20.0]], {}, "...X"),
    ([[1.0], [1.0], [1.0], [5.0]], {}, "...n"),
    ([[1.0], [1.0], [1.0], [7.6]], {}, "...X"),
    # where clients differ far begins at 1.4⁹ = 20.7 times: the spread is at its ceiling
    ([*WIDE, [20.0]], {}, "....n"),
    ([*WIDE, [21.0]], {}, "....X"),
    # clients with other tensors are compared on what they share
    ([[1.0, 100.0, NAN], [1.0, NAN, NAN], [1.1, 90.0, 1e9], [1.0, 110.0, NAN]], {}, "...."),
    ([[1.0, 100.0, NAN], [50.0, NAN, NAN], [1.1, 90.0, 1e9], [1.0, 110.0, NAN]], {}, ".X.."),
    # who takes more steps may move further
    ([[1.0], [1.0], [20.0]], {"steps": [10.0, 10.0, 200.0]}, "..."),
    ([[1.0], [1.0], [30.0]], {"steps": [200.0, 10.0, 10.0]}, "..X"),
    # half of the clients are not left out by the other half, but for what overflows
    ([[1.0], [1.0], [20.0], [20.0]], {}, "..nn"),
    ([[1.0], [3e19]], {}, ".X"),
    ([[1.0], [1.0], [math.inf], [math.inf]], {}, "..XX"),
    # fewer than half are found however large
    *(
        ([[1.0]] * (10 - n) + [[huge]] * n, {}, "." * (10 - n) + "X" * n)
        for huge, n in product((1e8, 1e37, 3e38, math.inf), (1, 4))
    ),
    # of two both are suspects unless history decides
    ([[1.0], [9.0]], {}, "nn"),
    ([[1.0], [3.0]], {}, ".."),
    ([[1.0], [1e8]], {}, ".X"),
    ([[1.0], [10.0]], {"past": STEADY}, ".X"),
    ([[12.0], [10.0]], {"past": STEADY}, ".."),
    ([[1e5], [1.1e5], [0.9e5]], {}, "..."),
    # a variance is a square
    ([[1.0, 1.0], [1.0, 1.0], [1.0, 9.0]], {"parameters": [True, False]}, "..."),
    ([[1.0, 1.0], [1.0, 1.0], [1.0, 100.0]], {"parameters": [True, False]}, "..X"),
    # those who do not move hide nobody
    ([[0.0], [0.0], [1.0]], {}, "..."),
    ([[0.0], [0.0], [1.0], [1.1], [30.0]], {}, "....X"),
    ([[0.01], [1.0], [1.1], [30.0]], {}, "...X"),
]


@pytest.mark.parametrize(("sizes", "options", "expected"), SIZES)
def test_who_is_far_and_who_is_named(
    sizes: list[list[float]], options: dict[str, Any], expected: str
) -> None:
    norms = torch.tensor([sizes, sizes])
    width = len(sizes[0])
    kinds = options.get("parameters", [True] * width)
    pace = options.get("steps", [1.0] * len(sizes))
    far = find_far(
        norms, torch.tensor(kinds), torch.ones(width), options.get("past", ()), torch.tensor(pace)
    )
    pairs = zip(far.far.tolist(), far.suspicious.tolist(), strict=True)
    assert "".join("X" if out else "n" if named else "." for out, named in pairs) == expected


def test_guards_that_leave_nobody_out(tmp_path: Path) -> None:
    """Without one, or where it only watches; which changes no bit. Which leaves out:
    contract/test_contract.py."""
    exchange: dict[str, Any] = {"federated": ["core"], "rate": 0.7}
    ends = []
    for guard in ("watch", False):
        run = trained(
            tmp_path / str(guard),
            client=bad("state"),
            exchange={**exchange, "guard": guard},
            epochs=2,
        )
        found = run.exchange.incident_counts.get("cedar", {})
        assert bool(found.get("watched")) == (guard == "watch") and "left_out" not in found
        ends.append(weights(run))
    assert different(*ends) == []

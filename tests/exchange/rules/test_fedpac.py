"""FedPAC's weights of classifiers: against a general solver, the conditions of an optimum, and
closed forms."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from fedlit import FedPACMean, Round, Update
from fedlit.exchange.rules.fedpac import collaboration, least_on_simplex


def sent(h: dict[str, list[float]], v: float, head: float = 0.0, rows: int = 1) -> Update:
    published = {f"feature/{label}": torch.tensor(value) for label, value in h.items()}
    state = {"core.weight": torch.tensor([head]), "head.bias": torch.tensor([head])}
    return Update(state, rows, {**published, "variance": torch.tensor(v)}, tuple(state))


def random_matrix(size: int, seed: int, variance: float) -> Tensor:
    """P of a client that resembles some of the others."""
    h = np.random.default_rng(seed).normal(size=(size, 5)) + np.linspace(0, 2, size)[:, None]
    h[0] = 0
    diagonal = variance * np.random.default_rng(seed + 1).uniform(0.1, 1, size)
    return torch.tensor(h @ h.T + np.diag(diagonal))


@pytest.mark.parametrize(
    ("size", "variance"), [(2, 1.0), (5, 4.0), (12, 30.0), (40, 100.0), (40, 0.0), (40, 1e-6)]
)
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_the_least_on_the_simplex(size: int, variance: float, seed: int) -> None:
    p = random_matrix(size, seed, variance)
    start = min(2, size - 1)
    alpha = least_on_simplex(p, start)
    value = alpha @ p @ alpha
    assert (alpha >= 0).all() and alpha.sum() == pytest.approx(1, abs=1e-12)
    scale = float(p.diagonal().max())
    # no weight has a gradient that promises a decrease
    assert (p @ alpha >= value - 1e-10 * scale).all()
    assert torch.equal(alpha, least_on_simplex(p, start))

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        gradient = p.numpy() @ weights
        return float(weights @ gradient) / scale, 2 * gradient / scale

    general = minimize(
        objective, np.full(size, 1 / size), jac=True, method="SLSQP", bounds=[(0, 1)] * size, tol=1e-14,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
    )  # fmt: skip
    assert float(value) / scale <= general.fun + 1e-10
    if variance >= 1:
        np.testing.assert_allclose(alpha, general.x, atol=1e-4)


def test_clients_that_are_the_same_have_weights_by_variance() -> None:
    same = {"ill": [1.0, 2.0], "well": [0.5, 0.0]}
    weights = collaboration(
        {name: sent(same, v) for name, v in {"a": 1.0, "b": 2.0, "c": 4.0}.items()}
    )
    for found in weights.values():
        assert found == pytest.approx({"a": 4 / 7, "b": 2 / 7, "c": 1 / 7})


@pytest.mark.parametrize("distance", [0.0, 1.5, 50.0])
def test_two_clients_weigh_variance_against_distance(distance: float) -> None:
    weights = collaboration({"a": sent({"ill": [0.0]}, 1.0), "b": sent({"ill": [distance]}, 3.0)})
    share = 1 / (1 + 3 + distance**2)
    expected = {"a": 1.0} if share < 1e-3 else {"a": 1 - share, "b": share}
    assert weights["a"] == pytest.approx(expected)


def test_labels_are_matched_by_name() -> None:
    first = sent({"ill": [1.0], "well": [0.0]}, 1.0)
    second = sent({"well": [0.0], "ill": [1.0]}, 1.0)
    third = sent({"fever": [3.0]}, 1.0)
    weights = collaboration({"a": first, "b": second, "c": third})
    assert weights["a"] == pytest.approx(collaboration({"a": first, "b": second, "c": third})["b"])
    # of c, the features are at a squared distance of 1 + 9
    least = [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 11.0]]
    assert [weights["a"][name] for name in "abc"] == pytest.approx(
        least_on_simplex(torch.tensor(least).double()).tolist()
    )


def test_a_client_that_took_no_part_keeps_its_head() -> None:
    updates = {
        "a": sent({"ill": [0.0]}, 1.0, head=1.0, rows=3),
        "b": sent({"ill": [0.0]}, 1.0, head=5.0),
    }
    names = ("core.weight", "head.bias")
    received = FedPACMean()(Round(0, 0, updates, dict.fromkeys("abc", names)))
    assert (
        received["a"]["head.bias"].item() == pytest.approx(3) and "head.bias" not in received["c"]
    )
    assert {state["core.weight"].item() for state in received.values()} == {2.0}  # by rows


def test_slices_are_combined_over_the_clients_that_have_them() -> None:
    states = {"a": ["head.bias[ill]"], "b": ["head.bias[ill]", "head.bias[well]"]}
    updates = {
        name: Update(
            {own: torch.tensor([float(name == "b")]) for own in owned},
            1,
            {"variance": torch.tensor(1.0), "feature/ill": torch.ones(1)},
        )
        for name, owned in states.items()
    }
    received = FedPACMean()(
        Round(0, 0, updates, {name: tuple(owned) for name, owned in states.items()})
    )
    assert received == {
        "a": {"head.bias[ill]": torch.tensor([0.5])},
        "b": {"head.bias[ill]": torch.tensor([0.5]), "head.bias[well]": torch.tensor([1.0])},
    }

"""On quadratics methods come to rest where theory says: closed forms of ``quadratic.py``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from methods.quadratic import STEPS, Problem, point, problems, quadratic, rest

from fedlit.client.client import FederatedClient
from fedlit.exchange.rules import FedAvgM, FedNova, Mean
from fedlit.methods import Ditto, FedProx, PFedMe

Own = dict[str, Problem]
ONE = dict.fromkeys(STEPS, 1)
PER_STEP = {name: 1 / steps for name, steps in STEPS.items()}
fedavg = partial(rest, lr=0.2)
RESTS: dict[str, tuple[Any, Any, int, Callable[[Own], np.ndarray], float]] = {
    # client, rule, rounds, where it rests, to what tolerance
    "fedavg": (FederatedClient, Mean, 60, fedavg, 1e-5),
    "fedprox": (partial(FedProx, mu=1.5), Mean, 60, partial(rest, lr=0.2, mu=1.5), 1e-5),
    "momentum at the server": (FederatedClient, partial(FedAvgM, 0.5), 40, fedavg, 2e-4),
    "fednova": (FederatedClient, FedNova, 60, partial(rest, lr=0.2, weights=PER_STEP), 2e-4),
}


@pytest.mark.parametrize("method", RESTS)
def test_a_federation_rests_where_theory_says(method: str, tmp_path: Path) -> None:
    client, rule, rounds, expected, tolerance = RESTS[method]
    run = quadratic(tmp_path, client=client, lr=0.2, rounds=rounds, exchange={"rule": rule})
    own = problems(run)
    run.fit(quiet=True)
    assert point(run) == pytest.approx(expected(own), abs=tolerance)
    assert np.abs(fedavg(own) - rest(own, lr=0.2, weights=PER_STEP)).max() > 0.03


@pytest.mark.parametrize(
    ("client", "lr", "steps", "federated", "strength"),
    [
        (partial(Ditto, strength=0.5), 0.1, STEPS, partial(rest, lr=0.1), 0.5),
        # w minimises Moreau envelopes: clients go to their proximal points
        (partial(PFedMe, strength=1.0, inner_steps=10, eta=0.5), 0.3, ONE,
         partial(rest, lr=0.3, steps=dict.fromkeys(STEPS, np.inf), mu=1.0), 1.0),
    ],
    ids=["ditto", "pfedme"],
)  # fmt: skip
def test_personal_models_are_proximal_points(
    client: Any, lr: float, steps: Any, federated: Any, strength: float, tmp_path: Path
) -> None:
    run = quadratic(tmp_path, client=client, lr=lr, steps=steps, rounds=150)
    own = problems(run)
    run.fit(quiet=True)
    w = federated(own)
    assert point(run) == pytest.approx(w, abs=1e-4)
    for name, one in own.items():
        assert point(run, name, "personal.") == pytest.approx(one.near(w, strength), abs=1e-4)
        assert np.abs(one.near(w, strength) - w).max() > 0.01

"""Clients choose one way to mix together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedlit.mix.together import choose_together
from fedlit.tasks import Regression


def client(seed: int, rows: int, mine: float, ours: float) -> tuple[Any, torch.Tensor, dict[str, np.ndarray]]:
    """Rows, and an own and a federated part whose errors have these standard deviations."""
    draw = np.random.default_rng(seed)
    y = draw.normal(size=rows)
    parts = {name: (y + draw.normal(0, own, rows))[:, None] for name, own in (("mine", mine), ("ours", ours))}
    return Regression(), torch.tensor(y), parts


def test_small_clients_take_what_is_best_for_all_and_a_large_one_that_differs_leaves() -> None:
    clients = {f"small{place}": client(place, 20, 1.0, 0.3) for place in range(20)}
    clients["odd"] = client(99, 20, 0.5, 0.9)  # better alone, which 20 rows cannot show against all candidates
    clients["large"] = client(100, 4000, 0.3, 1.0)
    chosen = choose_together(clients, ["mine"])
    assert {own.common for own in chosen.values()} == {"ours"}
    assert all(own.candidate == "ours" for name, own in chosen.items() if name.startswith("small"))
    large = chosen["large"]
    assert large.candidate != "ours" and large.weights["mine"] > 0.8
    assert large.difference is not None and large.difference[1] > 0
    again = choose_together(dict(reversed(list(clients.items()))), ["mine"])
    assert {name: own.weights for name, own in again.items()} == {name: own.weights for name, own in chosen.items()}


def test_each_client_counts_alike_whatever_its_units() -> None:
    """In grams a squared error is a million times that in kilograms; the others decide all the same."""
    common = []
    for scale in (1.0, 1000.0):
        clients = {f"kg{place}": client(place, 200, 1.0, 0.2) for place in range(2)}
        task, y, parts = client(7, 30, 0.2, 1.0)
        clients["g"] = task, y * scale, {name: own * scale for name, own in parts.items()}
        common.append({own.common for own in choose_together(clients, ["mine"]).values()})
    assert common[0] == common[1] and common[0] <= {"ours", "fitted"}


def test_without_own_parts_there_is_no_going_alone() -> None:
    task, y, parts = client(1, 50, 1.0, 0.2)
    (chosen,) = choose_together({"a": (task, y, parts)}, []).values()
    assert chosen.candidate == "ours" and dict(chosen.weights) == {"ours": 1.0}

"""Terms of a federation of sites, and messages between a site and the coordinator."""

from typing import Any

import torch

from fedlit.exchange.questions import Own
from fedlit.exchange.wire import question_to
from fedlit.institutions.terms import Terms

SITES = ["east", "north", "south"]


FORMS: dict[str, tuple[str, tuple[int, ...]]] = {"w": ("float32", (2,))}


OFFER = {
    "tensors": FORMS,
    "parameters": 1,
    "met": ["w"],
    "named": [],
    "chosen": True,
    "whole": True,
}


TERMS = Terms("north", {}, {"federated": OFFER}, FORMS)


def curvature(points: int, at: float = 0.0) -> dict[str, Any]:
    tensors = {
        "ridge": torch.tensor(3.0).double(),
        "prior.1: age": torch.full((points,), at).double(),
    }
    return question_to(Own("curvature", tensors))


def questions(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"to": f"round:0/{n - 1}" if n else "round:0", "n": n, "ask": curvature(1, n)}
        for n in range(first, last)
    ]


def reply(**changes: Any) -> dict[str, Any]:
    own = {"received": {"w": torch.ones(2)}, "next": 1, "lost": [], "records": {}, "bytes": 0}
    return {
        "to": "round:0",
        "reply": {key: value for key, value in {**own, **changes}.items() if value != "gone"},
    }


def said(state: Any = None, **changes: Any) -> dict[str, Any]:
    update = {"state": state or {"w": torch.ones(2)}, "published": {}, "rows": 0, "steps": 0}
    return {"key": "round:0", "site": "south", "saved": -1, "updates": {"south": update}, **changes}

"""The guard: nobody honest is named in what ships, and whoever sends huge numbers is, under every rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

import fedlit
from fedlit.errors import FedlitError
from fedlit.exchange.rules import CFL, IFCA, Agglomerative, FedAvgM

Rows = list[tuple[str, int, int, str]]

HONEST = {
    "quickstart.yaml": 6, "diabetes.yaml": 10, "heart_gl.yaml": 6, "heart_fedavg.yaml": 6, "heart_chfl.yaml": 15,
    "heart_sites_ifedavg.yaml": 10, "shifts.yaml": 4, "digits_fedgmcc.yaml": 3, "covertype_gl.yaml": 3,
    "covertype_fedavg.yaml": 3, "covertype_apfl.yaml": 3, "covertype_ifedavg.yaml": 3, "covertype_tabm.yaml": 2,
    "covertype_fedgmcc.yaml": 3, "covertype_chfl.yaml": 15,
}  # fmt: skip
"""What ships and needs no download → epochs."""

SIX = fedlit.Partition(fedlit.Bundled(clients=["digits"]), 6, deal=fedlit.Iid())
GUILTY = "c03"
FAULTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "1e8": lambda own, given: torch.full_like(own, 1e8),
    "1e37": lambda own, given: torch.full_like(own, 1e37),
    "3e38": lambda own, given: torch.full_like(own, 3e38),
    "3e38 in one value": lambda own, given: torch.cat([own.new_tensor([3e38]), own.flatten()[1:]]).reshape(own.shape),
    "-10 x its state": lambda own, given: -10 * own,
    "-30 x its update": lambda own, given: given - 30 * (own - given),
}
RULES: dict[str, Callable[[], fedlit.Rule]] = {
    "Mean": fedlit.Mean,
    "Mean by rows": partial(fedlit.Mean, "rows"),
    "FedAvgM": FedAvgM,
    "IFCA": partial(IFCA, 2),
    "CFL": CFL,
    "Agglomerative": partial(Agglomerative, 1, clusters=2),
}


class Bad(fedlit.FederatedClient):
    """One of six that sends other numbers than it learnt."""

    fault = "1e8"

    def on_send(self, steps: int) -> None:
        """Spoil them."""
        if self.spec.name != GUILTY:
            return
        given = getattr(self, "given", {})
        with torch.no_grad():
            for name, tensor in self.federated.items():
                tensor.copy_(FAULTS[self.fault](tensor, given.get(name, torch.zeros_like(tensor))))

    def on_receive(self, received: Any) -> None:
        """Remember it."""
        self.given = {name: value.clone() for name, value in received.items()}


def guard(folder: Path, tries: int) -> Rows:
    """False alarms on what ships, and faults times rules, steps, clipping and bfloat16."""
    return [_honest(folder), _huge(folder)]


def _honest(folder: Path) -> tuple[str, int, int, str]:
    named, looked_at = [], 0
    for config, epochs in HONEST.items():
        try:
            run = fedlit.load(
                config, f"--trainer.max_epochs={epochs}", f"--trainer.default_root_dir={folder}",
                "--trainer.logger=false", "--trainer.enable_checkpointing=false",
            )  # fmt: skip
            run.fit(quiet=True)
        except FedlitError as error:
            named.append(f"{config}: {str(error)[:80]}")
            continue
        looked_at += run.exchange.rounds
        named += [f"{config}: {client} {what}" for client, what in run.exchange.found.items()]
    passed = len(HONEST) - len({line.partition(":")[0] for line in named})
    return "guard: nobody is named in what ships", len(HONEST), passed, "; ".join(named) or f"{looked_at} exchanges"


def _huge(folder: Path) -> tuple[str, int, int, str]:
    made = [(fault, rule, {"every": "epoch"}, {}) for fault, rule in product(FAULTS, RULES)]
    made += [(fault, "Mean", {"every": "step"}, {}) for fault in FAULTS]
    made += [(fault, "Mean", {"guard": "clip"}, {}) for fault in FAULTS]
    made += [(fault, "Mean", {"rate": 0.5}, {"precision": "bf16-true"}) for fault in FAULTS]
    wrong = []
    for fault, rule, exchange, options in made:
        client = type("Bad", (Bad,), {"fault": fault})
        run = fedlit.Run(
            fedlit.FederatedLoop(partial(client, network=partial(fedlit.MLP, hidden=[8, 8])), seed=3, threads=1),
            fedlit.FederatedData(SIX, align="classes", batches=4, seed=3),
            fedlit.Exchange(["*"], rule=RULES[rule](), **exchange),
            root=folder, max_epochs=3, logger=False, enable_checkpointing=False, **options,
        )  # fmt: skip
        try:
            run.fit(quiet=True)
        except FedlitError as error:
            wrong.append(f"{fault}, {rule}, {exchange}: {str(error)[:100]}")
            continue
        found = run.exchange.found
        finite = all(bool(value.isfinite().all()) for value in run.loop.state_dict().values())
        if set(found) != {GUILTY} or not finite:
            wrong.append(f"{fault}, {rule}, {exchange}: named {found}")
    return "guard: one of six sends huge numbers", len(made), len(made) - len(wrong), "; ".join(wrong)

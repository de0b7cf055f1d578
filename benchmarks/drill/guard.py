"""The guard names nobody honest in what ships. Whom it finds is tested in
``tests/exchange/test_guard.py``.
"""

from __future__ import annotations

from pathlib import Path

import fedlit
from fedlit.errors import FedlitError

Rows = list[tuple[str, int, int, str]]

HONEST = {
    "quickstart.yaml": 6, "diabetes.yaml": 10, "heart_gl.yaml": 6, "heart_fedavg.yaml": 6, "heart_chfl.yaml": 15,
    "heart_sites_ifedavg.yaml": 10, "shifts.yaml": 4, "digits_fedgmcc.yaml": 3, "covertype_gl.yaml": 3,
    "covertype_fedavg.yaml": 3, "covertype_apfl.yaml": 3, "covertype_ifedavg.yaml": 3, "covertype_tabm.yaml": 2,
    "covertype_fedgmcc.yaml": 3, "covertype_chfl.yaml": 15,
}  # fmt: skip
"""What ships and needs no download → epochs."""


def guard(folder: Path, tries: int) -> Rows:
    """See the module."""
    named = []
    looked_at = 0
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
        named += [
            f"{config}: {client} {what}" for client, what in run.exchange.incident_counts.items()
        ]
    passed = len(HONEST) - len({line.partition(":")[0] for line in named})
    return [
        (
            "guard: nobody is named",
            len(HONEST),
            passed,
            "; ".join(named) or f"{looked_at} exchanges",
        )
    ]

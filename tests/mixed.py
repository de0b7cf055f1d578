"""A mixture whose weights have the least loss, for tests of tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.mixture.mixture import Mixture


def mixed_best(parts: Mapping[str, Mapping[str, Any]], folder: Path) -> Mixture:
    """Fit a mixture with fitted weights, and check that no part alone is better than these."""
    settings = {"mixture": {"parts": parts, "weights": "fitted", "shrink": 0, "admit": False}}
    trainer = {"default_root_dir": str(folder)}
    mixture = Mixture({**settings, "seed": 3, "folds": 2, "name": "mixed", "trainer": trainer})
    fitted = mixture.fit(quiet=True)
    for client, held in mixture.held.items():
        least = held.loss.mean(held.array(fitted.clients[client]["weights"]))
        for part in held.parts.values():
            assert least <= held.loss.mean(part) + 1e-9
    return mixture

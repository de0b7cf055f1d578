"""Fifty random tables, and what scikit-survival computes for them, in ``survival_figures.json``.

scikit-survival is no dependency, because its licence is the GPL. To write the figures again:

    python -m venv /tmp/scores && /tmp/scores/bin/pip install scikit-survival
    /tmp/scores/bin/python tests/survival_figures.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

FIGURES = Path(__file__).with_suffix(".json")
TABLES = 50
TIMES = (10.0, 20.0, 30.0)


def table(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training rows (80, 2) and test rows (40, 2), of times with ties and events, and
    predicted probabilities of no event up to each of the times (40, 3).
    """
    draw = np.random.default_rng(seed)
    rows = np.stack([draw.integers(1, 45, 120), draw.integers(0, 2, 120)], 1).astype(float)
    rows[0] = (60, 0)  # somebody is observed longer than all others
    survival = np.round(draw.uniform(0.05, 0.95, (40, 1)), 1) ** np.array([1.0, 2.0, 3.0])
    return rows[:80], rows[80:], survival


def main() -> None:
    """Write the figures of all tables."""
    import sksurv  # type: ignore[import-not-found]
    from sksurv.metrics import (  # type: ignore[import-not-found]
        brier_score,
        concordance_index_ipcw,
        cumulative_dynamic_auc,
        integrated_brier_score,
    )
    from sksurv.util import Surv  # type: ignore[import-not-found]

    figures = []
    for seed in range(TABLES):
        *parts, survival = table(seed)
        train, test = (Surv.from_arrays(rows[:, 1] == 1, rows[:, 0]) for rows in parts)
        risk = 1 - survival
        concordance = concordance_index_ipcw(train, test, risk[:, -1], tau=TIMES[-1])[0]
        areas, _ = cumulative_dynamic_auc(train, test, risk, TIMES)
        _, briers = brier_score(train, test, survival, TIMES)
        integrated = integrated_brier_score(train, test, survival, TIMES)
        figures.append([integrated, concordance, float(np.mean(areas)), float(np.mean(briers))])
    content = {"scikit-survival": sksurv.__version__, "figures": figures}
    FIGURES.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

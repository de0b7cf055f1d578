"""Ten random tables of four strata, and what lifelines computes for them, in ``cox_figures.json``.

lifelines is no dependency. To write the figures again:

    python -m venv /tmp/cox && /tmp/cox/bin/pip install lifelines
    /tmp/cox/bin/python tests/cox_figures.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FIGURES = Path(__file__).with_suffix(".json")
TABLES = 10


def tables_of(seed: int, *, late: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return inputs (n, 3) and targets (n, 3) of each stratum: times with ties, events, and
    entries, which are −∞ unless rows enter late.
    """
    draw = np.random.default_rng(seed)
    tables = []
    for stratum in range(4):
        rows = 30 + 10 * stratum
        x = draw.normal(size=(rows, 3))
        death = np.ceil(draw.exponential(8 * (1 + stratum) * np.exp(-x @ [0.5, -0.3, 0.0])))
        end = np.ceil(draw.uniform(2, 40, rows))
        days = np.minimum(death, end)
        entry = np.full(rows, -np.inf)
        if late:
            entry = np.floor(days * draw.uniform(0, 0.9, rows))
        tables.append((x, np.column_stack([days, death <= end, entry])))
    return tables


def main() -> None:
    """Write the figures of all tables."""
    import lifelines  # type: ignore[import-not-found]
    import pandas as pd

    def figures_of(seed: int, *, late: bool) -> Any:
        frames = []
        for stratum, (x, y) in enumerate(tables_of(seed, late=late)):
            frame = pd.DataFrame(x, columns=["a", "b", "c"])
            frame = frame.assign(time=y[:, 0], event=y[:, 1], stratum=stratum)
            frames.append(frame.assign(entry=y[:, 2]) if late else frame)
        fitter = lifelines.CoxPHFitter()
        fitter.fit(
            pd.concat(frames, ignore_index=True),
            "time",
            "event",
            strata=["stratum"],
            entry_col="entry" if late else None,
            fit_options={"precision": 1e-10, "r_precision": 1e-14},
        )
        return fitter.params_.tolist(), fitter.standard_errors_.tolist()

    content: dict[str, Any] = {"lifelines": lifelines.__version__}
    for name, late in (("censored", False), ("late", True)):
        content[name] = []
        for seed in range(TABLES):
            effects, errors = figures_of(seed, late=late)
            content[name].append({"effects": effects, "errors": errors})
    FIGURES.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Validation curves of runs, one panel per client, read from their TensorBoard files.

    python benchmarks/curves.py OUT.png "Global Layers=lightning_logs/covertype_gl/version_0,…/version_1" "Local=…"

Runs of one label, separated by commas, are seeds: their mean is drawn, each of them faintly.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

COLOURS = ("#1f5fa8", "#d1701f", "#2a8a57", "#8a4fa3")


def curve(run: Path, client: str, tag: str) -> tuple[np.ndarray, np.ndarray]:
    """(aligned steps, values) of one scalar."""
    events = EventAccumulator(str(run / client), size_guidance={"scalars": 0}).Reload().Scalars(tag)
    return np.array([event.step for event in events]), np.array([event.value for event in events])


def main(out: str, *labelled: str, tag: str = "val/auroc", batches: int = 10) -> None:
    """Draw the labelled runs."""
    groups = {
        label: [Path(path) for path in paths.split(",")] for label, paths in (item.split("=") for item in labelled)
    }
    first = next(iter(groups.values()))[0]
    folders = (path.name for path in first.iterdir() if list(path.glob("events.*")))
    clients = sorted(name for name in folders if name != "federation")
    figure = Figure(figsize=(2.9 * len(clients), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, client in zip(figure.subplots(1, len(clients), squeeze=False)[0], clients, strict=True):
        for (label, runs), colour in zip(groups.items(), COLOURS, strict=False):
            curves = [curve(run, client, tag) for run in runs]
            for steps, values in curves:
                axes.plot(steps / batches, values, color=colour, alpha=0.25, linewidth=0.8)
            mean = np.mean([values for _, values in curves], axis=0)
            axes.plot(curves[0][0] / batches, mean, color=colour, linewidth=1.8, label=label)
        low = min(line.get_ydata()[len(line.get_ydata()) // 10 :].min() for line in axes.get_lines())
        axes.set_ylim(low - 0.005, None)
        axes.set_title(client)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("validation AUROC")
    figure.axes[0].legend(loc="lower right", frameon=False)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

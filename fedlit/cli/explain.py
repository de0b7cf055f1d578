"""``fedlit explain``."""

from __future__ import annotations

from fedlit.explain import CORRECTIONS, EFFECTS, PATHS
from fedlit.run.folders import find_run
from fedlit.show.shown import for_terminal


def explain(
    *,
    run: str,
    client: str | None = None,
    threshold: float = 2.0,
    out: str | None = None,
) -> None:
    """Show what the private layers of a run's clients correct, as heatmaps, as findings.csv, and in words.

    It needs no data. For FedGMCC it shows the loss along paths between clients' models; for a mixed model, effects with
    intervals, variance components and sites' own effects.

    Args:
        run: a run's folder, or the name of a configuration: its newest run
        client: for a mixed model, show only this client's own effects
        threshold: the number of standard deviations from which a finding is marked
        out: where to write (default: explain/ in the run's folder)
    """
    folder = find_run(run, lambda found: any((found / name).is_file() for name in (CORRECTIONS, PATHS, EFFECTS)))
    from fedlit.run import explanation

    found = explanation.explain(folder, client=client, threshold=threshold, out=out)
    print(for_terminal(found))
    print(for_terminal("\nWrote " + ", ".join(str(path) for path in found.files)))

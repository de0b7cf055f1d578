"""What a user can ask for beside the scores of a split: scores at a chosen threshold, and scores of
subgroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fedlit.data.sources.base import Source
from fedlit.exchange.transport import Transport
from fedlit.run import subgroups, thresholds
from fedlit.run.thresholds import Chosen
from fedlit.spec import ClientSpec
from fedlit.tasks.operating import ThresholdRule, check_rule
from fedlit.tasks.predictions import Predictions
from fedlit.train.supplement import Supplement


@dataclass
class ScoreSettings:
    """What is scored beside the usual scores, by ``validate`` and ``test``. Training does not
    depend on it.

    Attributes:
        threshold: the operating threshold of each client of two classes, chosen on its validation
            rows: ``youden`` for the largest sensitivity + specificity, ``{specificity: 0.9}`` for
                the largest sensitivity with at least this
            specificity, or ``{sensitivity: 0.9}``. Scores at 0.5 stay.
        subgroups: the columns by whose values scores are computed: ``[sex]``; a number is cut:
            ``{sex: , age: [40, 65]}``. Columns that are not trained on (``data.columns``) may be
            named.
    """

    threshold: ThresholdRule | None = None
    subgroups: list[str] | dict[str, list[float] | None] | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None:
            check_rule(self.threshold, "score.threshold")
        subgroups.check_cuts(self.subgroups)

    @property
    def asked(self) -> bool:
        """Whether anything is asked for."""
        return self.threshold is not None or bool(self.subgroups)

    def check(self, specs: Iterable[ClientSpec]) -> None:
        """Refuse a threshold for clients that do not predict one of two classes.

        Raises:
            ConfigError: naming these clients.
        """
        if self.threshold is not None:
            tasks: dict[str, Any] = {}
            for spec in specs:
                tasks |= {site.name: spec.task.at(site.classes) for site in spec.sites}
            thresholds.check_two_classes(tasks)


def supplements_of(
    settings: ScoreSettings,
    scored: Mapping[str, Predictions],
    chosen: Chosen,
    source: Source,
    seed: int,
    main: str,
    group: Transport,
) -> tuple[Supplement, ...]:
    """Return the tables that the settings ask for, of the clients of all processes.

    Args:
        settings: the settings.
        scored: maps each client of this process to the rows that were scored.
        chosen: the thresholds of all clients; empty if none are asked for.
        source: the source of the tables.
        seed: the seed of the run.
        main: the main score of the clients.
        group: the processes.

    Raises:
        ConfigError: no client has a column.
        DataError: a column has too many values.
    """
    supplements = []
    if settings.threshold is not None:
        records_here = thresholds.records_of(chosen, scored)
        records = list(chain.from_iterable(group.gather("scores at thresholds", records_here)))
        supplements.append(thresholds.supplement_of(settings.threshold, chosen, records))
    cuts = subgroups.check_cuts(settings.subgroups)
    if cuts:
        records_here, columns = subgroups.records_of(cuts, source, seed, scored, chosen)
        records = list(chain.from_iterable(group.gather("scores of subgroups", records_here)))
        for of_other_ranks in group.gather("columns of clients", columns):
            columns |= of_other_ranks
        supplements.append(subgroups.supplement_of(cuts, records, columns, main))
    return tuple(supplements)

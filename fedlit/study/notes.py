"""Notes on a study's methods that a reader of its scores should know before the first run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fedlit.mixture.written import is_mixture
from fedlit.show.text import shorten
from fedlit.study.basis import Basis
from fedlit.study.resolve import ResolvedStudy

_TRAINER = (
    "max_epochs",
    "min_epochs",
    "max_steps",
    "min_steps",
    "max_time",
    "limit_train_batches",
    "callbacks",
)
_STOP = ("monitor", "patience", "min_delta", "min_epochs")
_TRAINING = (*(f"trainer.{key}" for key in _TRAINER), *(f"model.stop.{key}" for key in _STOP))
"""Keys that say how long is trained."""


def training_notes(study: ResolvedStudy, basis: Basis) -> list[str]:
    """Return notes on differences in training between methods: different lengths, or different
    rules for an early stop. Whether the last or the best state is scored is a setting of the study
    and the same for all methods.

    Args:
        study: the study.
        basis: the basis of the study.
    """
    differences: dict[str, dict[str, list[str]]] = {key: {} for key in _TRAINING}
    for name, tuned in study.variants:
        # Each part of a mixture is trained as it needs it.
        if study.methods[name].of is not None or is_mixture(study.config(name)):
            continue
        keys = basis.content(study, name, tuned).keys
        label = study.labels[name]
        for key, values in differences.items():
            value = json.dumps(keys[key], default=str) if keys.get(key) else "not set"
            labels = values.setdefault(value, [])
            if label not in labels:
                labels.append(label)
    return [_note(key, values) for key, values in differences.items() if len(values) > 1]


def _note(key: str, values: Mapping[str, Sequence[str]]) -> str:
    """Say which methods have which value of a key."""
    listing = "; ".join(f"{value} for {shorten(labels)}" for value, labels in values.items())
    return (
        f"Methods are not trained alike: {key} is {listing}. What looks like a gain may be one of "
        "training; give all methods the same"
    )

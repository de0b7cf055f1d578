"""What the plan of a study is based on: the contents of its configurations, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.mixture.written import is_mixture
from fedlit.study.contents import Content, Contents
from fedlit.study.mixtures import mixture_settings
from fedlit.study.rows import Rows
from fedlit.study.study import Lineup


class Basis:
    """What is read once to plan a study.

    Args:
        study: the study; its variants with the same reference can be planned, too.
        folder: the folder in which the contents of configurations are cached for the next time;
            None to always build them.

    Attributes:
        contents: the contents of configurations.
        rows: the rows of the reference, which all methods have.

    Raises:
        ConfigError: the reference has no configuration.
    """

    def __init__(self, study: Lineup, folder: Path | None = None) -> None:
        first = study.methods[study.reference].combinations[0]
        self.rows = Rows(*data_config(study, study.reference, first))
        self.contents = Contents(folder)

    def content(self, study: Lineup, name: str, tuned: Mapping[str, Any]) -> Content:
        """Return the content of the configuration that determines a method's rows.

        Args:
            study: the study.
            name: the method.
            tuned: a combination of its settings.

        Raises:
            ConfigError: the configuration is not valid.
        """
        return self.contents.of(*data_config(study, name, tuned))


def data_config(study: Lineup, name: str, tuned: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the configuration that determines a method's rows, and the changed keys. For a mixture
    it is that of the first part, because all parts read the same rows.
    """
    name = study.trained(name)
    config = study.config(name)
    overrides = study.methods[name].overrides(tuned)
    if is_mixture(config):
        first = next(iter(mixture_settings(config, overrides).parts.values()))
        return str(first.config), first.set
    return str(config), overrides

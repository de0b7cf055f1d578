"""The place of a source that somebody else's run names: its tables are not read unasked."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from fedlit.data.sources.base import Source
from fedlit.errors import ConfigError

__all__ = ["Withheld"]


class Withheld(Source):
    """Gives no table, and says how to name one.

    Args:
        named: the source that the run's configuration names.
        config: that configuration.

    Example:
        >>> Withheld("fedlit.Tables", "ward/config.yaml").tables(seed=0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: data.source: expected tables of your own, found that only ward/config.yaml names ...
    """

    name: ClassVar[str] = "withheld"
    about: ClassVar[str] = "no table: a copied run's own source is not read unasked"

    def __init__(self, named: str, config: str) -> None:
        self.named, self.config = named, config

    def tables(self, seed: int) -> NoReturn:
        """None; see the class."""
        raise ConfigError(
            f"data.source: expected tables of your own, found that only {self.config} names some ({self.named}), and "
            "it is not signed on this account; name yours in a configuration that you give with --config, or with "
            "--data.source, or, if you know who wrote that file, add --trust"
        )

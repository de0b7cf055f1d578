"""The configuration of a run with all its keys, as it is kept, written and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fedlit import yaml_text
from fedlit.names import plain
from fedlit.run.config import flatten
from fedlit.run.read import Content, placed


@dataclass(frozen=True)
class Resolved:
    """A configuration in which no key is left out. Its text and its dotted keys follow from one
    mapping.

    Attributes:
        content: keys and values, nested as in a file.
        head: the lines above the keys in the file.

    Example:
        >>> resolved = Resolved({"seed": 8, "data": {"fold": 0}}, "# made from quickstart.yaml")
        >>> print(resolved.text)
        # made from quickstart.yaml
        seed: 8
        data:
          fold: 0
        <BLANKLINE>
        >>> resolved.changed({"data.fold": 1}).keys
        {'seed': 8, 'data.fold': 1}
    """

    content: Content
    head: str = ""

    @cached_property
    def text(self) -> str:
        """The configuration as YAML."""
        text = yaml_text.dump(dict(self.content))
        return f"{self.head}\n{text}" if self.head else text

    @cached_property
    def keys(self) -> dict[str, object]:
        """Maps each dotted key that has a value to its value, as a file with it is read: names are
        text.
        """
        return dict(flatten(plain(yaml_text.as_read(dict(self.content)))))

    def changed(self, values: Mapping[str, object]) -> Resolved:
        """Return the configuration with other values of some dotted keys, without its head."""
        content = self.content
        for key, value in values.items():
            content = placed(content, key.split("."), value)
        return Resolved(content)

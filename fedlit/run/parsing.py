"""jsonargparse as fedlit uses it: fedlit's YAML and names, only allowed classes, and fedlit's
messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import yaml
from jsonargparse import ArgumentParser, set_dumper, set_loader
from jsonargparse.typing import register_type

from fedlit import yaml_text
from fedlit.errors import told_as
from fedlit.names import Word
from fedlit.run.allowed import only_allowed
from fedlit.run.arguments import Asked
from fedlit.run.layers import given_in
from fedlit.run.messages import why_refused
from fedlit.run.modules import find_modules

_YAML = "fedlit"
"""What jsonargparse knows fedlit's YAML by."""

_Parser = TypeVar("_Parser", bound=ArgumentParser)


def new_parser(kind: type[_Parser]) -> _Parser:
    """Return a parser without keys, which reads fedlit's YAML."""
    register_type(Word, serializer=lambda word: word, type_check=isinstance)
    set_loader(_YAML, yaml_text.load_dumped, exceptions=(yaml.YAMLError,))
    set_dumper(_YAML, yaml_text.dump)
    return kind(
        prog="fedlit", description="", parser_mode=_YAML, exit_on_error=False, allow_abbrev=False
    )


@contextmanager
def parsing(asked: Asked) -> Iterator[None]:
    """Find the user's own modules, and inside the block build only allowed classes from foreign
    files and turn errors into fedlit's.

    Args:
        asked: the command and its configuration, which the block parses.

    Raises:
        ConfigError: a key or a value is refused.
    """
    find_modules(asked)
    folders = [path.parent for path in asked.foreign]
    typed_values = given_in(asked.layers)
    with (
        only_allowed(asked.words, folders) if asked.foreign else nullcontext(),
        told_as(lambda error: why_refused(error, typed_values)),
    ):
        yield

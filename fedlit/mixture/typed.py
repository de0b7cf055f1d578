"""The keys of a mixture that are typed on the command line, and where they belong in its
configuration. It imports nothing heavy, because it is read before torch is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.arguments import pairs_of
from fedlit.run.config import listed, parse_yaml
from fedlit.run.read import Content, keys_of, placed


def typed_pairs(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the configurations, and the mapping of each other key to its value, that were typed
    after a command.
    """
    pairs = list(pairs_of(typed))
    configs = [value for flag, value in pairs if flag == "--config"]
    return configs, {flag.removeprefix("--"): value for flag, value in pairs if flag != "--config"}


def with_typed(
    content: Content, typed: Mapping[str, str], file: type[object], part: type[object]
) -> Content:
    """Return the content of a mixture's file, in which typed values replace what is written.

    There are two short forms. ``parts.NAME.KEY`` is a key of a part, or of the configuration of a
    part. ``data.KEY`` is a key of the configurations of all parts, which have the same tables.

    Args:
        content: the content of the file.
        typed: maps each key to its value, as it was typed.
        file: the dataclass of the file.
        part: the dataclass of a part.

    Raises:
        ConfigError: a key is not known, or a value is no YAML.
    """
    # A typed part comes first, because other typed keys may belong to it.
    for key in sorted(typed, key=lambda key: not key.endswith(".go_alone")):
        value = parse_yaml(typed[key], f"--{key}", key)
        for path in _paths(key, _parts(content), keys_of(file), keys_of(part)):
            if path[-2:-1] == ["grid"]:
                value = listed(value)
            content = placed(content, path, value)
    return content


def _parts(content: Content) -> list[str]:
    mixture = content.get("mixture")
    parts = mixture.get("parts") if isinstance(mixture, Mapping) else None
    return list(parts) if isinstance(parts, Mapping) else []


def _paths(
    key: str, parts: Collection[str], of_file: Collection[str], of_part: Collection[str]
) -> list[list[str]]:
    """Return the places of a typed key in the file."""
    group, _, rest = key.partition(".")
    name, _, inner = rest.partition(".")
    settable = [known_key for known_key in of_file if known_key != "mixture.parts"]
    if group == "data" and rest:
        return [["mixture", "parts", part, "set", key] for part in parts]
    if group == "parts" and inner and (name in parts or inner == "go_alone"):
        # A name that is not known is a further part, which is fitted to the tables of the others.
        inside = ["set", inner]
        if inner in of_part:
            inside = [inner]
        elif inner.startswith("grid."):
            inside = ["grid", inner.removeprefix("grid.")]
        return [["mixture", "parts", name, *inside]]
    if key in settable:
        return [key.split(".")]
    if key.startswith("mixture.weights."):
        return [["mixture", "weights", key.removeprefix("mixture.weights.")]]
    near = did_you_mean(name, parts) if group == "parts" else did_you_mean(key, settable, "--")
    if not near and parts:
        near = f" For a part: --parts.{next(iter(parts))}.{key}"
    choices = [*settable, "data.KEY", *(f"parts.{part}.KEY" for part in parts)]
    raise ConfigError(
        f"--{key}: expected one of the keys of a mixture, {', '.join(choices)}, found "
        f"another.{near}"
    )

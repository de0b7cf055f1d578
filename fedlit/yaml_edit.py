"""Edits the text of a YAML file, so that comments, order and layout of everything else stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from fedlit import yaml_text
from fedlit.errors import ConfigError

_MOST_CHANGES = 1_000
_WIDE = 10**9


def edited(text: str, target: Mapping[str, object], where: str = "the file") -> str:
    r"""Return a text that is read as the wanted content, with as few changes as possible.

    Args:
        text: YAML whose content is a mapping.
        target: the content that the result has. Keys of the text that it lacks stay.
        where: the beginning of messages.

    Raises:
        ConfigError: the text cannot be edited in this way, for example because of an anchor.

    Example:
        >>> text = "data:  # mine\n  drop: [a]  # a score\n  seed: 1\n"
        >>> print(edited(text, {"data": {"drop": ["a", "b"], "positive": "ill"}}), end="")
        data:  # mine
          drop: [a, b]  # a score
          seed: 1
          positive: ill
    """
    for _ in range(_MOST_CHANGES):
        content = yaml_text.load(text) or {}
        path = _first_difference(content, target)
        if path is None:
            return text
        text = _with_value(text, path, _at(content, path), _at(target, path))
    raise ConfigError(
        f"{where}: expected YAML that can be edited line by line, found other; write the block by "
        "hand"
    )


def _first_difference(
    content: Mapping[str, object], target: Mapping[str, object]
) -> tuple[str, ...] | None:
    """Return the path of the first value that differs; a mapping that is absent counts as one
    value.
    """
    for key, value in target.items():
        present = content.get(key)
        if present == value and key in content:
            continue
        if not isinstance(value, Mapping) or not isinstance(present, Mapping):
            return (key,)
        below = _first_difference(present, value)
        if below is not None:
            return (key, *below)
    return None


def _at(content: object, path: tuple[str, ...]) -> object:
    """Return the value at a path, or None if it ends early."""
    for key in path:
        if not isinstance(content, Mapping):
            return None
        content = content.get(key)
    return content


def _deepest(text: str, path: tuple[str, ...]) -> tuple[yaml.MappingNode, tuple[str, ...]]:
    """Return the deepest mapping on a path, and the rest of the path."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            "expected YAML whose content is a mapping, found other; write the block by hand"
        )
    for depth, key in enumerate(path):
        value = _value(node, key)
        if not isinstance(value, yaml.MappingNode):
            return node, path[depth:]
        node = value
    return node, ()


def _value(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in node.value if name.value == key), None)


def _with_value(text: str, path: tuple[str, ...], before: object, value: object) -> str:
    """Return a text with a value at a path, in place of the value before."""
    node, rest = _deepest(text, path[:-1])
    key, *deeper = [*rest, path[-1]]
    for name in reversed(deeper):
        value = {name: value}
    present = _value(node, key)
    if present is None:
        return _with_key(text, node, key, value)
    if (
        isinstance(before, list)
        and isinstance(value, list)
        and isinstance(present, yaml.SequenceNode)
        and before
        and value[: len(before)] == before
    ):
        return _with_items(text, present, value[len(before) :])
    start = present.start_mark.index
    end = present.end_mark.index if getattr(present, "flow_style", None) else _end(present)
    head = text[:start]
    if not head.endswith((" ", "\n")):
        head += " "
    return f"{head}{_flow(value)}{text[end:]}"


def _with_items(text: str, node: yaml.SequenceNode, items: Sequence[object]) -> str:
    if node.flow_style:
        end = _end(node)
        return f"{text[:end]}, {_flow(items)[1:-1]}{text[end:]}"
    return _below(text, node, [f"- {_flow(item)}" for item in items])


def _with_key(text: str, node: yaml.MappingNode, key: str, value: object) -> str:
    """Return a text with a key behind the others of a mapping: within its braces, or on lines below
    them.
    """
    if node.flow_style:
        end = node.start_mark.index + 1
        comma = ""
        if node.value:
            end = _end(node)
            comma = ", "
        return f"{text[:end]}{comma}{yaml_text.dump_line({key: value})}{text[end:]}"
    if isinstance(value, Mapping) and any(isinstance(inner, Mapping) for inner in value.values()):
        lines = yaml_text.dump({key: value}, default_flow_style=None, width=_WIDE).splitlines()
    else:
        lines = [yaml_text.dump_line({key: value})]
    return _below(text, node, lines)


def _below(text: str, node: yaml.CollectionNode, lines: Sequence[str]) -> str:
    """Return a text with lines below the last line of a block, indented as its keys or items
    are.
    """
    indent = " " * node.start_mark.column
    inserted = "".join(f"\n{indent}{line}" for line in lines)
    last = _end(node)
    if text[last - 1] == "\n":
        last -= 1
    end = text.find("\n", last)
    if end < 0:
        return f"{text}{inserted}\n"
    return text[:end] + inserted + text[end:]


def _end(node: yaml.Node) -> int:
    """Return where the last value inside a node ends. The end of a block itself lies behind the
    comments below it.
    """
    while node.value and isinstance(node, yaml.CollectionNode):
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
        if isinstance(node, yaml.CollectionNode) and node.flow_style:
            return int(node.end_mark.index)
    return int(node.end_mark.index)


def _flow(value: object) -> str:
    text = yaml_text.dump(value, default_flow_style=True, width=_WIDE).strip()
    return text.removesuffix("\n...").strip()

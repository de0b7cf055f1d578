"""Reads and writes the YAML of configurations, so that what is written is read back as it was.

Names are text. A key of a mapping is what stands there: ``101``, ``1e3``, ``no`` and ``null`` are
names of clients, not numbers, false and nothing. So are the values of the keys that name something
in the user's tables (:data:`TEXT`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import yaml

from fedlit.names import Word, plain

TEXT = frozenset({
    "chosen", "client", "client_column", "columns", "drop", "known", "leave_out", "name", "names", "path", "positive",
    "rename", "site", "split", "target", "types", "values",
})  # fmt: skip
"""The last parts of keys whose values are names, labels and words of the user: never numbers, never
classes."""
_LISTS = frozenset({"clients", "common", "sites"})
"""Keys whose lists are names. Their other values may be numbers: ``board.clients`` says how
many."""
_OUTER = frozenset({"subgroups"})
"""Keys whose list is names, but below the names of a mapping there may be numbers."""
_WORDS = frozenset({"missing"})
"""Keys whose values are words or numbers, but never true, false or nothing."""
TABLES = frozenset({"board", "data", "score"})
"""The groups in which these keys are; at the top of a file, ``name`` and ``site`` are text, too.
Elsewhere, among arguments of classes or names of models, a key of the same name may mean anything.
"""
_Pair = tuple[yaml.Node, yaml.Node]
_Rule = tuple[str, re.Pattern[str]]
_TAG = "tag:yaml.org,2002:"
_NUMBERS_OF_YAML = {
    f"{_TAG}int": (re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), "-+0123456789"),
    f"{_TAG}float": (
        re.compile(
            r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
        ),
        "-+.0123456789",
    ),
}
"""Those of YAML 1.2: in YAML 1.1, ``8:28`` is 508 (in base 60) and ``1e-3`` is text."""


def is_text(key: str) -> bool:
    """Return whether the values of a key are text, whatever stands there.

    Example:
        >>> is_text("data.source.positive"), is_text("data.leave_out+"), is_text("trainer.max_epochs")
        (True, True, False)
    """
    return _rule(tuple(key.removesuffix("+").split("."))) == "text"


def as_text(text: str) -> str:
    """Return text that is read as text from here on, also where its type is not known.

    Example:
        >>> type(as_text("1e3")).__name__, type(as_text("north")).__name__
        ('Word', 'str')
    """
    if _resolved(text) == f"{_TAG}str":
        return text
    return Word(text)


def load(text: str, key: str = "") -> Any:
    """Return the content of a text.

    Args:
        text: YAML.
        key: the key whose value the text is, if it is not a whole file.

    Raises:
        yaml.YAMLError: it is not YAML, or a key stands twice in one mapping.

    Example:
        >>> load("data: {steps: {101: 5, no: 3}, leave_out: [1e3], batches: 8}")
        {'data': {'steps': {'101': 5, 'no': 3}, 'leave_out': ['1e3'], 'batches': 8}}
    """
    if not key:
        return _constructed(text, ())
    return _constructed(text, tuple(key.removesuffix("+").split(".")))


def load_dumped(text: str) -> Any:
    """Return the content of a text that :func:`dump` wrote, in which all text is quoted that needs
    it.
    """
    return _constructed(text, ("as written",))


def _constructed(text: str, path: tuple[str, ...]) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _name(node, path, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def dump(content: object, **options: Any) -> str:
    r"""Return a content as YAML, in the order of its keys. ``options`` are those of
    :func:`yaml.dump`.

    Example:
        >>> dump({"files": {"1e3": "a.csv", "north": "b.csv"}})
        "files:\n  '1e3': a.csv\n  north: b.csv\n"
    """
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **options)
    return text


def as_read(content: object, key: str = "") -> Any:
    """Return a content of Python's as a file with it would be read, in which names are text. What
    no file can hold is returned as it is.

    Args:
        content: a mapping or a list.
        key: the key whose value it is, if it is not a whole configuration.

    Example:
        >>> type(as_read({"north": "yes"}, "data.source.positive")["north"]).__name__
        'Word'
    """
    try:
        return load(dump(content), key)
    except yaml.representer.RepresenterError:
        return content


def dump_line(content: Mapping[str, object]) -> str:
    r"""Return a content as YAML of one line, without braces around it.

    Example:
        >>> dump_line({"drop": ["a", "b"], "positive": "1e3"})
        "drop: [a, b], positive: '1e3'"
    """
    return dump(dict(content), default_flow_style=True, width=10**9).strip()[1:-1]


def _gathered(pairs: Iterable[_Pair], adds: bool = False) -> list[_Pair]:
    """Return the pairs of a mapping, with those of one key that ends with ``+`` as one pair.

    Args:
        pairs: keys and values.
        adds: whether they are the value of such a key, so that any of their keys adds.
    """
    result = list[_Pair]()
    positions = dict[str, int]()
    for key, value in pairs:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        position = len(result)
        if adds or name.endswith("+"):
            position = positions.setdefault(name, position)
        both = None
        if position < len(result):
            both = _both(result[position][1], value)
        if both is None:
            result.append((key, value))
        else:
            result[position] = (key, both)
    return result


def _both(first: yaml.Node, second: yaml.Node) -> yaml.Node | None:
    """Return two lists or two mappings as one; None if there is no such thing."""
    if type(first) is not type(second) or isinstance(first, yaml.ScalarNode):
        return None
    values = [*first.value, *second.value]
    if isinstance(first, yaml.MappingNode):
        values = _gathered(values, adds=True)
    return type(first)(first.tag, values, first.start_mark, second.end_mark)


class _Loader(yaml.SafeLoader):
    """Refuses a key that occurs twice in one mapping, of which YAML would silently keep the
    second, unless it ends with ``+`` and adds something.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        node.value = _gathered(node.value)
        seen = set()
        for written, _ in node.value:
            key = self.construct_object(written, deep=True)
            if not isinstance(key, Hashable):
                break  # which the parser itself refuses
            if key in seen:
                line = written.start_mark.line + 1
                raise yaml.YAMLError(
                    f"key {key!r} stands twice, the second time in line {line}; keep one of them"
                )
            seen.add(key)
        mapping = super().construct_mapping(node, deep)
        return {plain(key): value for key, value in mapping.items()}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Return the text of a value."""
        return as_text(self.construct_scalar(node))


class _Dumper(yaml.SafeDumper):
    """Quotes whatever a reader of YAML 1.1 or of YAML 1.2 would take for something other than
    text.
    """


def _without_numbers(rules: Iterable[_Rule]) -> list[_Rule]:
    return [(tag, pattern) for tag, pattern in rules if tag not in _NUMBERS_OF_YAML]


_Loader.yaml_implicit_resolvers = {
    first: _without_numbers(rules)
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in _NUMBERS_OF_YAML.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Dumper.add_implicit_resolver(_tag, _pattern, list(_first))
_Loader.add_constructor(f"{_TAG}str", _Loader.construct_text)
_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines in YAML 1.1, which a reader makes spaces of wherever they are not escaped."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(text) else None
    return dumper.represent_scalar(f"{_TAG}str", str.__str__(text), style=style)


for _kind in (_Dumper.add_representer, _Dumper.add_multi_representer):
    _kind(str, _represent_text)


def _resolved(text: str) -> str:
    """Return the kind of value that a text is where it stands bare."""
    rules = _Loader.yaml_implicit_resolvers
    for tag, pattern in [*rules.get(text[:1], ()), *rules.get(None, ())]:
        if pattern.match(text):
            return str(tag)
    return f"{_TAG}str"


def _rule(path: tuple[str, ...]) -> str:
    """Return how the scalars of a key are read: as ``text``, as text in ``lists``, as text in the
    ``list`` of the key itself, as ``words``, or by what they look like.
    """
    if len(path) != 1 and not TABLES & set(path):
        return ""
    for rule, names in (("text", TEXT), ("lists", _LISTS), ("list", _OUTER), ("words", _WORDS)):
        if path[-1] in names:
            return rule
    return ""


def _name(
    node: yaml.Node, path: tuple[str, ...], seen: set[tuple[int, str, bool]], rule: str = ""
) -> None:
    """Make keys text, and the values whose key says so. ``rule`` is that of the keys above a
    node.
    """
    rule = rule or _rule(path)
    visit = (id(node), rule, bool(TABLES & set(path)))
    if visit in seen:  # an anchor
        return
    seen.add(visit)
    if isinstance(node, yaml.MappingNode):
        below = rule
        if rule == "list":
            below = ""
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                key.tag = f"{_TAG}str"
            _name(value, (*path, *_parts(key)), seen, below)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            if isinstance(value, yaml.ScalarNode):
                _take(value, rule, nothing=bool(rule))
            else:
                _name(value, path, seen, rule)
    elif isinstance(node, yaml.ScalarNode):
        _take(node, rule)


def _parts(key: yaml.Node) -> Iterator[str]:
    """Yield the parts of a key, which a study writes with points."""
    if isinstance(key, yaml.ScalarNode):
        yield from (part for part in key.value.removesuffix("+").split(".") if part != "init_args")


def _take(node: yaml.ScalarNode, rule: str, nothing: bool = False) -> None:
    """Make a scalar text if the rule of its key says so; ``nothing`` also makes ``null`` text."""
    allowed = [f"{_TAG}str"]
    if not nothing:
        allowed.append(f"{_TAG}null")
    if rule == "words":
        allowed += _NUMBERS_OF_YAML
    if (
        rule
        and node.tag.startswith(_TAG)
        and node.tag not in allowed
        and (nothing or not rule.startswith("list"))
    ):
        node.tag = f"{_TAG}str"

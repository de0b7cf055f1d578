"""Every regular expression of fedlit, found in its source, and texts that make a slow one slow."""

from __future__ import annotations

import ast
import re
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fedlit

SOURCE = Path(fedlit.__file__).parent
SIZE = 200_000
MOST = 80  # texts for one pattern
_METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
_RE2 = (
    "match_substring_regex",
    "replace_substring_regex",
    "extract_regex",
    "count_substring_regex",
)
_PANDAS = (
    "contains",
    "match",
    "fullmatch",
    "extract",
    "extractall",
    "replace",
    "split",
    "findall",
    "count",
)


class Use(NamedTuple):
    """One place at which a pattern reads text. ``pattern`` is None where the source builds it while
    it runs; ``written`` is how the source writes it.
    """

    place: str
    written: str
    pattern: str | bytes | None
    flags: int
    method: str


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    """Return what an expression of texts and flags is worth, or None if it depends on what is
    read."""
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {"re": re}, dict(names))  # type: ignore[arg-type]
    except Exception:
        return None


@cache
def _trees() -> dict[str, ast.Module]:
    files = sorted(SOURCE.rglob("*.py"))
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8")) for path in files
    }


@cache
def _methods() -> dict[str, set[str]]:
    """Map each name to the methods that are taken from it anywhere, such as ``_SITE`` to
    fullmatch."""
    found: dict[str, set[str]] = {}
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                owner = node.value
                if isinstance(owner, ast.Subscript):
                    owner = owner.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                found.setdefault(name, set()).add(node.attr)
    return found


def uses() -> Iterator[Use]:
    """Yield every use of a pattern in fedlit's source."""
    for file, tree in _trees().items():
        names: dict[str, Any] = {}
        bound: dict[int, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if node in tree.body:
                    names[name] = _value(node.value, names)
                bound |= {id(inner): name for inner in ast.walk(node.value)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                yield from _uses_of(
                    node, node.func, f"{file}:{node.lineno}", names, bound.get(id(node), "")
                )


def _uses_of(
    call: ast.Call, function: ast.Attribute, place: str, names: dict[str, Any], bound: str
) -> Iterator[Use]:
    owner = function.value
    if isinstance(owner, ast.Name) and owner.id == "re" and function.attr in ("compile", *_METHODS):
        given = {own.arg: _value(own.value, names) for own in call.keywords}
        flags = given.get("flags") or 0
        place_of_flags = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(function.attr, 2)
        if len(call.args) > place_of_flags:
            flags = _value(call.args[place_of_flags], names)
        pattern = _value(call.args[0], names)
        written = ast.unparse(call.args[0])
        methods = {function.attr}
        if function.attr == "compile":
            methods = _methods().get(bound, set()) if bound else {"match"}  # which PyYAML calls
            methods = methods or {"match", "fullmatch", "search"}
        for method in sorted(methods):
            yield Use(place, written, pattern, int(flags), method)
    elif function.attr in _RE2:
        yield Use(place, ast.unparse(call.args[1]), _value(call.args[1], names), 0, "re2")
    elif isinstance(owner, ast.Attribute) and owner.attr == "str" and function.attr in _PANDAS:
        yield Use(place, ast.unparse(call), None, 0, function.attr)


# ---------------------------------------------------------------------- texts


def _sample(tree: Any, times: int) -> str:
    """Return a text that this part of a pattern matches, where each repetition is taken so many
    times."""
    return "".join(_of_node(kind, value, times) for kind, value in tree)


def _of_node(kind: Any, value: Any, times: int) -> str:
    match kind:
        case kinds.LITERAL:
            return chr(value)
        case kinds.NOT_LITERAL:
            return "a" if value != ord("a") else "b"
        case kinds.ANY:
            return "a"
        case kinds.IN:
            return _of_class(value)
        case kinds.BRANCH:
            return _sample(value[1][-1], times)
        case kinds.MAX_REPEAT | kinds.MIN_REPEAT | kinds.POSSESSIVE_REPEAT:
            low, high, inner = value
            return _sample(inner, times) * min(max(low, times), int(high))
        case kinds.SUBPATTERN | kinds.ATOMIC_GROUP:
            return _sample(value[-1] if kind is kinds.SUBPATTERN else value, times)
    return ""  # what looks around takes nothing


_CLASSES = {kinds.CATEGORY_DIGIT: "0", kinds.CATEGORY_SPACE: " ", kinds.CATEGORY_WORD: "a"}
_NEGATED = {
    kinds.CATEGORY_NOT_DIGIT: "a",
    kinds.CATEGORY_NOT_SPACE: "a",
    kinds.CATEGORY_NOT_WORD: "-",
}


def _of_class(items: Any) -> str:
    if items[0][0] is kinds.NEGATE:
        banned = {chr(value) for kind, value in items if kind is kinds.LITERAL}
        categories = {value for kind, value in items if kind is kinds.CATEGORY}
        for letter in "a0 -<\u00e4":
            wrong = letter.isalnum() and kinds.CATEGORY_WORD in categories
            digit = letter.isdigit() and kinds.CATEGORY_DIGIT in categories
            if (
                letter not in banned
                and not digit
                and (not wrong or kinds.CATEGORY_NOT_WORD in categories)
            ):
                return letter
        return "a"
    kind, value = items[0]
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.RANGE:
        return chr(value[0])
    return (_CLASSES | _NEGATED).get(value, "a")


def _parts(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """Yield a text for each part of a pattern, and one for what stands before it."""
    for kind, value in tree:
        for times in (1, 2):
            yield before, _of_node(kind, value, times)
        inner: list[Any] = []
        if kind is kinds.BRANCH:
            inner = value[1]
        elif kind in (
            kinds.SUBPATTERN,
            kinds.MAX_REPEAT,
            kinds.MIN_REPEAT,
            kinds.POSSESSIVE_REPEAT,
        ):
            inner = [value[-1]]
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            inner = [value[1]]
        elif kind is kinds.ATOMIC_GROUP:
            inner = [value]
        for own in inner:
            yield from _parts(own, before)
        before += _of_node(kind, value, 1)


def adverse(pattern: str | bytes, flags: int) -> list[tuple[str, str, str]]:
    """Return what to write before, again and again, and after: parts of a pattern, their
    beginnings, and all of it."""
    tree = parser.parse(pattern, flags)
    pieces = [
        *_parts(tree, ""),
        ("", _sample(tree, 0)),
        ("", _sample(tree, 1)),
        ("", _sample(tree, 2)),
    ]
    found: dict[tuple[str, str, str], None] = {}
    for before, piece in pieces:
        if not piece:
            continue
        for end in ("", "\x00", "\n!"):
            found[before, piece, end] = None
        found["", before + piece, "\x00"] = None
        found[before[:1], before[1:] + piece, "\x00"] = None
        found[before, piece + " ", "\x00"] = None
    for letter in ("a", "0", " ", "\n", "_", ".", "<"):
        found["", letter, "\x00"] = None
        found[_sample(tree, 1), letter, "\x00"] = None
    step = len(found) // MOST + 1
    return list(found)[::step]


def text(kind: tuple[str, str, str], size: int) -> str:
    """Return a text of that many characters."""
    before, piece, after = kind
    return before + (piece * (size // len(piece) + 1))[:size] + after

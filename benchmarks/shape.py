"""Measures the shape of Python code, and finds what its readers stumble over.

    python benchmarks/shape.py [FOLDER]          a table by room, per 10,000 tokens
    python benchmarks/shape.py --check           what breaks a rule; exit status 1 if anything does

Tokens do not change when a line is broken, so that no figure of the table improves by packing. A
rule holds in all files of the library but for the exceptions below, each of which has a reason.
Names of tests say a behaviour in at most 60 characters.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "fedlit"
TESTS = Path(__file__).parents[1] / "tests"
LONGEST_TEST_NAME = 60

GENERIC = {
    *("own", "found", "told", "said", "made", "given", "known", "wanted", "met", "here", "each"),
    *("other", "others", "theirs", "mine", "more", "what", "way", "which", "where", "so", "left"),
    *("kept", "held", "asked", "place", "places", "alike", "apart", "several", "word", "words"),
    *("shown", "listed", "tell", "such", "fits", "good", "fine", "odd"),
}
"""Names that say nothing about what they hold."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("fedlit/data/agree.py", "generic name apart"): "a field of saved agreements",
    ("fedlit/data/module.py", "generic name known"): "the key data.known",
    ("fedlit/data/sent.py", "generic name what"): "a key of plans",
    ("fedlit/score/array_models.py", "generic name left"): "an array of saved trees",
    ("fedlit/score/as_arrays.py", "generic name left"): "an array of saved trees",
    ("fedlit/data/schema/numbers.py", "generic name way"): "a field of saved schemas",
    ("fedlit/run/arguments.py", "generic name said"): "words of a user, from Python",
    ("fedlit/run/config.py", "generic name what"): "a parameter with a default",
    ("fedlit/run/explanation.py", "generic name told"): "what an explanation prints",
    ("fedlit/run/layers.py", "generic name own"): "a field of a layer: written by the user",
    ("fedlit/run/layers.py", "generic name where"): "a field of a layer: the text before a key",
    ("fedlit/sharing.py", "generic name met"): "a key of what clients send",
    ("fedlit/train/checkpoint_file.py", "generic name asked"): "a field of saved checkpoints",
    ("fedlit/institutions/terms.py", "generic name known"): "a part of the terms, as data.known",
    ("fedlit/institutions/settings.py", "generic name tell"): "a key of site.yaml",
    ("fedlit/data/shaping/mutations.py", "generic name other"): "a key of configurations",
    ("fedlit/data/sources/base.py", "generic name known"): "an attribute of users' own sources",
    ("fedlit/data/sources/hospitals.py", "generic name known"): "Source.known",
    ("fedlit/data/sources/known.py", "generic name known"): "Source.known",
    ("fedlit/data/sources/packaged.py", "generic name known"): "Source.known",
    ("fedlit/data/sources/recordings.py", "generic name known"): "Source.known",
    ("fedlit/data/sources/vehicle.py", "generic name known"): "Source.known",
    ("fedlit/mixture/combine.py", "generic name own"): "a key of mixture.json",
    ("fedlit/mixture/recommend.py", "generic name wanted"): "a key of recommend.json",
}
"""(file, rule, with the name if a name breaks it) → why the rule does not hold there."""

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


@dataclass(frozen=True)
class Breach:
    """A place that breaks a rule."""

    rule: str
    line: int
    what: str = ""


def packed_assignment(node: ast.AST) -> bool:
    """Return whether a statement assigns several written-out values at once and is no swap."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    values = {ast.unparse(value) for value in node.value.elts}
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            return {ast.unparse(name) for name in target.elts} != values
    return False


def nested_comprehension(node: ast.AST) -> bool:
    """Return whether a comprehension holds another one, or loops twice."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    return len(node.generators) > 1 or _holds(node, COMPREHENSIONS)


def nested_conditional(node: ast.AST) -> bool:
    """Return whether a conditional expression holds another one."""
    return isinstance(node, ast.IfExp) and _holds(node, ast.IfExp)


def conditional_argument(node: ast.AST) -> bool:
    """Return whether a call of three or more arguments has a conditional expression as one."""
    if not isinstance(node, ast.Call):
        return False
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    return len(arguments) >= 3 and any(isinstance(value, ast.IfExp) for value in arguments)


def text_by_condition(node: ast.AST) -> bool:
    """Return whether a text or a list is multiplied by a condition."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (node.left, node.right)
    return any(map(_is_text, sides)) and any(map(_is_condition, sides))


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr | ast.List)


def _is_condition(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "bool"
    return isinstance(node, ast.Compare | ast.BoolOp)


def _holds(node: ast.AST, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    inside = ast.walk(node)
    next(inside)
    return any(isinstance(child, kinds) for child in inside)


RULES = {
    "packed assignment": packed_assignment,
    "nested comprehension": nested_comprehension,
    "nested conditional": nested_conditional,
    "conditional argument": conditional_argument,
    "text by condition": text_by_condition,
}


def breaches(tree: ast.AST) -> Iterator[Breach]:
    """Yield what breaks a rule in a module."""
    for node in ast.walk(tree):
        for name, broken in RULES.items():
            if broken(node):
                yield Breach(name, node.lineno)  # type: ignore[attr-defined]
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in GENERIC:
            yield Breach("generic name", node.lineno, node.id)


@dataclass
class Shape:
    """What a room or the library consists of."""

    files: int = 0
    lines: int = 0
    tokens: int = 0
    bound: int = 0
    longest: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count a module."""
        tree = ast.parse(text)
        prose = _docstring_lines(tree)
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT or token.start[0] in prose:
                continue
            self.tokens += 1
            code.update(range(token.start[0], token.end[0] + 1))
        self.files += 1
        self.lines += len(code)
        for node in ast.walk(tree):
            self._count(node, code)
        self.counts.update(breach.rule for breach in breaches(tree))

    def _count(self, node: ast.AST, code: set[int]) -> None:
        if isinstance(node, ast.IfExp):
            self.counts["conditional"] += 1
        if isinstance(node, ast.Name):
            self.bound += isinstance(node.ctx, ast.Store)
            self.counts["Any"] += node.id == "Any"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            length = len(code.intersection(range(node.body[0].lineno, last + 1)))
            self.longest = max(self.longest, length)

    def row(self) -> list[str]:
        """Return the cells of the table."""

        def rate(*names: str) -> str:
            return f"{10_000 * sum(self.counts[name] for name in names) / self.tokens:.1f}"

        return [
            f"{self.files}",
            f"{self.lines:,}",
            f"{self.tokens:,}",
            f"{self.tokens / self.lines:.1f}",
            rate("packed assignment"),
            rate("nested comprehension"),
            rate("conditional"),
            rate("Any"),
            f"{100 * self.counts['generic name'] / max(1, self.bound):.1f}",
            f"{self.longest}",
        ]


HEADER = [
    *("room", "files", "lines", "tokens", "tokens/line", "packed", "nested", "conditional"),
    *("Any", "generic-%", "longest"),
]


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def room_of(path: Path, library: Path) -> str:
    """Return the folder right below the library in which a file lies; "ground" for its own."""
    inner = path.relative_to(library)
    return inner.parts[0] if len(inner.parts) > 1 else "ground"


def table(library: Path) -> str:
    """Return the shape of each room and of all."""
    rooms: dict[str, Shape] = {}
    whole = Shape()
    for path in sorted(library.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        rooms.setdefault(room_of(path, library), Shape()).add(text)
        whole.add(text)
    rows = [HEADER, *([name, *shape.row()] for name, shape in rooms.items())]
    rows.append(["all", *whole.row()])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = []
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        aligned.append("  ".join([name.ljust(widths[0]), *padded]))
    return "\n".join(aligned)


def check(library: Path) -> list[str]:
    """Return a line for each place that breaks a rule, and for each exception that is not needed."""
    lines = []
    unused = set(EXCEPTIONS)
    for path in sorted(library.rglob("*.py")):
        file = path.relative_to(library.parent).as_posix()
        for breach in breaches(ast.parse(path.read_text(encoding="utf-8"))):
            rule = f"{breach.rule} {breach.what}".rstrip()
            unused.discard((file, rule))
            if (file, rule) not in EXCEPTIONS:
                lines.append(f"{file}:{breach.line}: {rule}")
    lines += [f"{file}: {rule}: an exception that nothing needs" for file, rule in sorted(unused)]
    return lines


def long_test_names(tests: Path) -> list[str]:
    """Return a line for each test whose name is too long."""
    lines = []
    for path in sorted(tests.rglob("*.py")):
        file = path.relative_to(tests.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_") and len(node.name) > LONGEST_TEST_NAME:
                length = f"{len(node.name)} characters, at most {LONGEST_TEST_NAME}"
                lines.append(f"{file}:{node.lineno}: name of a test: {length}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=LIBRARY)
    parser.add_argument("--check", action="store_true", help="say what breaks a rule")
    options = parser.parse_args()
    print(table(options.folder))
    if not options.check:
        return 0
    lines = [*check(options.folder), *long_test_names(TESTS)]
    print(*lines, sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())

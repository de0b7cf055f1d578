"""A network as data: a list of operations and named tensors, read from files that anybody may have written.

A graph is a dictionary: ``format``, ``inputs`` (the width of a row), ``nodes`` and ``output``. A node has a ``name``,
an ``op`` of :data:`~fedlit.score.ops.OPS`, ``args`` and ``kwargs``. An argument is a number, a word, true, false, null,
a list of these, ``{"value": name}`` of what was computed before (or of a tensor, or of ``x``, the rows), or
``{"dtype": name}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import DataError, did_you_mean
from fedlit.score.ops import CHECKS, DTYPES, FACTORIES, OPS

__all__ = ["FORMAT", "ROWS", "Graph"]

FORMAT = 1
ROWS = "x"
"""What the rows are called."""

_MOST_NODES, _MOST_BYTES, _MOST_PARTS, _DEEPEST = 50_000, 2**30, 65_536, 3
_REFUSED = ("device", "layout", "pin_memory", "memory_format", "out")
_SEVERAL = ("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.unbind.int")


class Graph:
    """Computes what a network computes, by operations of a fixed list.

    Everything is checked before anything is computed: names, operations, arguments, and, by a run on tensors without
    memory, the shape of every result.

    Args:
        data: see the module.
        tensors: by name.
        outputs: width of what is computed of a row.
        where: whose it is; messages begin with it.

    Attributes:
        batch: rows that may be computed at a time, so that no result takes more than 1 GiB.

    Raises:
        DataError: it is no such graph.

    Example:
        >>> node = {"name": "y", "op": "aten.linear.default", "args": [{"value": "x"}, {"value": "w"}], "kwargs": {}}
        >>> graph = Graph({"format": 1, "inputs": 2, "nodes": [node], "output": "y"}, {"w": torch.ones(1, 2)}, 1)
        >>> graph(torch.tensor([[3.0, 4.0]]))
        tensor([[7.]])
    """

    def __init__(
        self, data: Mapping[str, Any], tensors: Mapping[str, Tensor], outputs: int, where: str = "network.json"
    ) -> None:
        self.where, self.tensors = where, dict(tensors)
        self._known("keys", set(data), {"format", "inputs", "nodes", "output"})
        if data["format"] != FORMAT:
            raise self._wrong(f"expected format {FORMAT}, found {data['format']!r}; update fedlit")
        inputs, nodes = data["inputs"], data["nodes"]
        if type(inputs) is not int or not 0 < inputs < 10**7 or not isinstance(nodes, list) or len(nodes) > _MOST_NODES:
            raise self._wrong(f"expected a width of rows, and a list of at most {_MOST_NODES} nodes, found others")
        self.inputs, self.outputs, self.output = inputs, outputs, data["output"]
        self.steps = [*self._steps(nodes)]
        self._last = self._last_uses()
        self.batch = self._fitting_batch()

    def __call__(self, x: Tensor) -> Tensor:
        """(n, inputs) float32 → (n, outputs)."""
        values: dict[str, Any] = {**self.tensors, ROWS: x}
        for place, (name, op, args, kwargs) in enumerate(self.steps):
            values[name] = OPS[op](*_filled(args, values), **_filled(kwargs, values))
            for used in self._last.get(place, ()):
                del values[used]
        found: Tensor = values[self.output]
        return found

    # ------------------------------------------------------------------ checks

    def _wrong(self, found: str) -> DataError:
        return DataError(f"{self.where}: {found}")

    def _known(self, what: str, found: set[str], expected: set[str]) -> None:
        if found != expected:
            odd = ", ".join(sorted(map(repr, found ^ expected)))
            raise self._wrong(f"expected the {what} {', '.join(sorted(expected))}, found others, or not these: {odd}")

    def _steps(self, nodes: list[Any]) -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
        known = {ROWS, *self.tensors}
        if ROWS in self.tensors:
            raise self._wrong(f"expected no tensor of the name {ROWS}, which the rows have")
        for node in nodes:
            if not isinstance(node, dict):
                raise self._wrong(f"expected nodes as objects, found {str(node)[:60]!r}")
            self._known("node's keys", set(node), {"name", "op", "args", "kwargs"})
            name, op, args, kwargs = (node[key] for key in ("name", "op", "args", "kwargs"))
            if not isinstance(name, str) or name in known:
                raise self._wrong(f"expected each node with a name of its own, found {str(name)[:60]!r}")
            if not isinstance(op, str) or op not in OPS:
                hint = did_you_mean(str(op)[:60], OPS)
                raise self._wrong(
                    f"node {name!r}: expected an operation of fedlit's list, found {str(op)[:60]!r}.{hint}"
                )
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise self._wrong(f"node {name!r}: expected arguments as a list and an object, found others")
            if op in CHECKS and not CHECKS[op](args, kwargs):
                raise self._wrong(f"node {name!r}: expected {op} as in scoring, found arguments of training")
            where = f"node {name!r}"
            if odd := sorted(set(kwargs) & set(_REFUSED)):
                raise self._wrong(f"{where}: expected no argument {odd[0]}, which says where a result lies")
            yield name, op, self._read(args, known, where), self._read(kwargs, known, where)
            known.add(name)
        if not isinstance(self.output, str) or self.output not in known - {ROWS, *self.tensors}:
            raise self._wrong(f"expected the name of a node as output, found {str(self.output)[:60]!r}")

    def _read(self, value: Any, known: set[str], where: str, depth: int = 0) -> Any:
        """An argument, with names checked and types in the place of their names."""
        if depth > _DEEPEST:
            raise self._wrong(f"{where}: expected lists of numbers, found some nested deeper")
        if isinstance(value, list):
            return [self._read(own, known, where, depth + 1) for own in value]
        if isinstance(value, dict) and depth == 0:  # keywords
            return {str(key): self._read(own, known, where, 1) for key, own in value.items()}
        if isinstance(value, dict):
            kind, own = next(iter(value.items()), ("", ""))
            if len(value) == 1 and kind == "value" and isinstance(own, str) and own in known:
                return _Value(own)
            if len(value) == 1 and kind == "dtype" and own in DTYPES:
                return DTYPES[own]
            raise self._wrong(f"{where}: expected a value that was computed before, found {str(value)[:60]}")
        if isinstance(value, str) and len(value) > 200:
            raise self._wrong(f"{where}: expected a word, found {len(value)} letters")
        return value

    def _last_uses(self) -> dict[int, list[str]]:
        """Place of a node → values that nobody needs behind it."""
        last: dict[str, int] = {}
        for place, (name, _, args, kwargs) in enumerate(self.steps):
            last[name] = place
            last.update(dict.fromkeys(_names(args), place))
            last.update(dict.fromkeys(_names(kwargs), place))
        last.pop(self.output, None)
        places: dict[int, list[str]] = {}
        for name, place in last.items():
            places.setdefault(place, []).append(name)
        return places

    def _fitting_batch(self) -> int:
        """The largest batch of which no result takes too much memory; of more and of fewer rows shapes are right."""
        self._shapes(1)
        for batch in (1024, 256, 64, 16, 4, 2):
            if self._shapes(batch) <= _MOST_BYTES:
                return batch
        raise self._wrong(f"expected results of at most {_MOST_BYTES >> 20} MiB, found larger ones")

    def _shapes(self, rows: int) -> int:
        """Bytes of the largest result for so many rows; nothing is allocated."""
        meta = torch.device("meta")
        values: dict[str, Any] = {name: own.to(meta) for name, own in self.tensors.items()}
        values[ROWS] = torch.empty(rows, self.inputs, device=meta)
        most = 0
        for name, op, args, kwargs in self.steps:
            given, named = _filled(args, values), _filled(kwargs, values)
            if op.split(".")[1:2] and op.split(".")[1] in FACTORIES:
                named["device"] = meta
            if op in _SEVERAL and max((*given[0].shape, 0) if isinstance(given[0], Tensor) else (0,)) > _MOST_PARTS:
                raise self._wrong(f"node {name!r}: expected at most {_MOST_PARTS} parts, found more")
            try:
                with torch.no_grad():
                    values[name] = OPS[op](*given, **named)
            except Exception as error:  # torch raises many kinds for arguments that do not fit
                told = " ".join(str(error).split())[:200]
                raise self._wrong(f"node {name!r} ({op}): expected arguments that fit, found: {told}") from error
            size = _bytes(values[name])
            if rows <= 2 and size > _MOST_BYTES:
                raise self._wrong(f"node {name!r} ({op}): expected at most {_MOST_BYTES:,} bytes, found {size:,}")
            most = max(most, size)
        found = values[self.output]
        if not isinstance(found, Tensor) or found.shape != (rows, self.outputs) or not found.is_floating_point():
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise self._wrong(f"expected an output ({rows}, {self.outputs}) of floats for {rows} rows, found {shape}")
        return most


class _Value:
    """A name in the place of what it will be."""

    def __init__(self, name: str) -> None:
        self.name = name


def _filled(argument: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, _Value):
        return values[argument.name]
    if isinstance(argument, list):
        return [_filled(own, values) for own in argument]
    if isinstance(argument, dict):
        return {key: _filled(own, values) for key, own in argument.items()}
    return argument


def _names(argument: Any) -> Iterator[str]:
    if isinstance(argument, _Value):
        yield argument.name
    for own in argument.values() if isinstance(argument, dict) else argument if isinstance(argument, list) else ():
        yield from _names(own)


def _bytes(value: Any) -> int:
    """What a result takes if it is written out; of a whole number nothing."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    if isinstance(value, int) and abs(value) < 2**63:
        return 0
    raise DataError(f"network.json: expected tensors and whole numbers, found a {type(value).__name__}")

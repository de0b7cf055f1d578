"""From a module to a graph: what PyTorch traces of it, as data."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedlit.errors import RunError
from fedlit.score.graph import FORMAT, ROWS
from fedlit.score.ops import DTYPES, OPS, SAME

__all__ = ["graph_of", "traced"]

_WHOLE = {operator.getitem: "getitem", operator.add: "add", operator.sub: "sub", operator.mul: "mul",
          operator.floordiv: "floordiv"}  # fmt: skip
_DEFAULTS = ("device", "layout", "pin_memory", "memory_format")
"""Keywords that say where a tensor lies, not what it holds."""


def traced(module: nn.Module, inputs: int, where: str) -> torch.export.ExportedProgram:
    """A module of (n, inputs) float32, for any n, as PyTorch exports it.

    Raises:
        RunError: what it does depends on the values of rows, or it does what cannot be traced.
    """
    batch = torch.export.Dim("rows", min=1)
    rows = torch.zeros(4, inputs)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's, of its own ways
            warnings.filterwarnings("ignore", "The tensor attribute", UserWarning)  # LSTMs list their parameters twice
            return torch.export.export(module, (rows,), dynamic_shapes=({0: batch},))
    except Exception as error:  # torch raises many kinds
        told = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise RunError(
            f"{where}: expected a prediction that is the same computation for all rows, found one that cannot be "
            f"traced: {told}; make its forward free of if and for over values of tensors, or use fedlit predict --run"
        ) from error


def graph_of(program: torch.export.ExportedProgram, where: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A graph as :class:`~fedlit.score.graph.Graph` takes it, and its tensors.

    What depends on no row is computed now, so that a graph has no tensor that only others are made of.

    Raises:
        RunError: an operation is not among those that a graph may have.
    """
    try:
        return _graph_of(program, where)
    except _Unknown:
        pass
    try:  # in simpler operations, and without changes in place
        return _graph_of(program.run_decompositions(), where)
    except _Unknown as error:
        raise RunError(
            f"{where}: expected operations that give the same for the same rows, found {error}, which is not on "
            "fedlit's list of these; use --format onnx or torch, or write the network with others"
        ) from error


class _Unknown(Exception):
    """An operation that is not on the list."""


def _graph_of(program: torch.export.ExportedProgram, where: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    signature = program.graph_signature
    results = [own for own in signature.output_specs]
    if len(results) != 1 or results[0].kind is not torch.export.graph_signature.OutputKind.USER_OUTPUT:
        raise _Unknown("a change of its own tensors")
    known = {**program.constants, **program.state_dict}
    held = {own.arg.name: known[own.target] for own in signature.input_specs if own.target is not None}
    constants: dict[str, Any] = {name: own.detach() for name, own in held.items()}
    rows = next(iter(signature.user_inputs))
    same: dict[str, Any] = {}
    nodes: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        op = _WHOLE.get(node.target) or str(node.target)
        if op.startswith(("aten._assert", "aten.sym_constrain")):
            continue
        if op in SAME or (op == "aten.dropout.default" and node.args[2] is False):
            same[node.name] = node.args[0].name
            continue
        if op not in OPS:
            if not node.users and not isinstance(node.target, torch._ops.OpOverload):
                continue  # a comparison of sizes, for an assert
            raise _Unknown(op)
        args = [_argument(own, rows, same) for own in node.args]
        kwargs = {key: _argument(own, rows, same) for key, own in node.kwargs.items() if key not in _DEFAULTS}
        names = set(_names(args)) | set(_names(kwargs))
        if names <= constants.keys() and names:
            with torch.no_grad():
                constants[node.name] = OPS[op](
                    *_computed(args, constants), **{key: _computed(own, constants) for key, own in kwargs.items()}
                )
            continue
        nodes.append({"name": node.name, "op": op, "args": args, "kwargs": kwargs})
    output = str(results[0].arg.name)
    output = _named(output, same)
    used = _used(nodes, output)
    graph = {"format": FORMAT, "inputs": 0, "nodes": used, "output": output}
    wanted = {name for node in used for name in (*_names(node["args"]), *_names(node["kwargs"]))}
    tensors = {name: own for name, own in constants.items() if name in wanted}
    if odd := [
        name for name, own in tensors.items() if not isinstance(own, Tensor) or own.dtype not in DTYPES.values()
    ]:
        raise _Unknown(f"the constant {odd[0]}")
    return graph, {name: own.contiguous().clone() for name, own in tensors.items()}


def _used(nodes: list[dict[str, Any]], output: str) -> list[dict[str, Any]]:
    """Those that the output needs."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if node["name"] in wanted:
            wanted.update(_names(node["args"]), _names(node["kwargs"]))
            kept.append(node)
    return kept[::-1]


def _named(name: str, same: Mapping[str, str]) -> str:
    while name in same:
        name = same[name]
    return name


def _argument(value: Any, rows: str, same: Mapping[str, str]) -> Any:
    if isinstance(value, torch.fx.Node):
        name = _named(value.name, same)
        return {"value": ROWS if name == rows else name}
    if isinstance(value, list | tuple):
        return [_argument(own, rows, same) for own in value]
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if name not in DTYPES:
            raise _Unknown(f"the type {name}")
        return {"dtype": name}
    if isinstance(value, torch.memory_format | torch.device | torch.layout):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _Unknown(f"the argument {value}")


def _names(argument: Any) -> list[str]:
    if isinstance(argument, list):
        return [name for own in argument for name in _names(own)]
    if isinstance(argument, dict) and set(argument) == {"value"} and isinstance(argument["value"], str):
        return [argument["value"]]
    return [name for own in argument.values() for name in _names(own)] if isinstance(argument, dict) else []


def _computed(argument: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, list):
        return [_computed(own, values) for own in argument]
    if isinstance(argument, dict) and "value" in argument:
        return values[argument["value"]]
    if isinstance(argument, dict) and "dtype" in argument:
        return DTYPES[argument["dtype"]]
    return {key: _computed(own, values) for key, own in argument.items()} if isinstance(argument, dict) else argument

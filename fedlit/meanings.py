"""What the places of federated tensors stand for. Only tensors of one meaning may be averaged: of
the same columns, with the same codes for their categories, and of the same labels, in the same
order.

Shapes alone do not tell: with two clients of two columns each, north's age and south's creatinine
may have the same place. A tensor whose network names its places (``axes``) means these names. For
any other tensor, the network is built once more with one input, and with one label, more: a tensor
whose shape changes runs along all inputs, or all labels.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from fedlit.errors import ConfigError, FedlitError
from fedlit.sharing import Form, form_of, named_tensors
from fedlit.show.text import shorten
from fedlit.slices import Axes, named_axes, slice_name
from fedlit.spec import ClientSpec

INPUTS = "inputs"
LABELS = "labels"

Meaning = Mapping[str, str | Sequence[str]]
"""Maps ``inputs`` and ``labels``, as far as a tensor runs along them, to their names in order, or
to a digest."""

_NetworkKey = tuple[tuple[str, Form], ...]
"""The names and forms of all tensors of a network."""

Build = Callable[[ClientSpec], nn.Module]
"""Builds an untrained client from a description."""

_REMEDY = {
    INPUTS: "give the clients one input space (data.align: features, or both)",
    LABELS: "give the clients the same labels in the same order (data.align: classes, or both)",
}


@dataclass(frozen=True)
class Described:
    """A client whose federated tensors have meanings.

    Attributes:
        module: the client.
        spec: its description.
        federated: the names of its federated tensors and slices.
    """

    module: nn.Module
    spec: ClientSpec
    federated: Sequence[str]


@dataclass
class Found:
    """The meanings of federated tensors.

    Attributes:
        meanings: client → tensor → its meaning; tensors without one, such as those of a core, are
            left out.
        unknown: client → tensors that are compared by shape alone, because its network could not be
            built with another number of inputs.
    """

    meanings: dict[str, dict[str, Meaning]] = field(default_factory=dict)
    unknown: dict[str, list[str]] = field(default_factory=dict)


def input_meanings(spec: ClientSpec, codes: bool = True) -> dict[str, str]:
    """Map the name of each input to what it stands for: its name, and the categories that its codes
    stand for.

    Args:
        spec: the client's description.
        codes: whether the network reads categories as numbers, so that a code must stand for the
            same category.

    Example:
        >>> from fedlit.inputs import Input
        >>> inputs = (Input("age", "age"), Input("ward", "ward", ("a", "b")))
        >>> input_meanings(ClientSpec("north", ("age", "ward"), (0, 1), {}, (), inputs=inputs))
        {'age': 'age', 'ward': 'ward (0: a, 1: b)'}
    """
    values: dict[str, tuple[str, ...]] = {}
    if codes:
        values = {client_input.name: client_input.values for client_input in spec.inputs}
    meanings = {}
    for name in spec.features:
        categories = ", ".join(
            f"{code}: {value}" for code, value in enumerate(values.get(name, ()))
        )
        meanings[name] = name
        if categories:
            meanings[name] = f"{name} ({categories})"
    return meanings


def find_meanings(clients: Mapping[str, Described], build: Build, agreed: bool = False) -> Found:
    """Return what the federated tensors of each client stand for.

    Args:
        clients: maps each client's name to it.
        build: builds an untrained client, to find the tensors that run along inputs or labels.
        agreed: whether all clients have agreed on the codes of categories, as with ``data.align:
            features``. A client that lacks a column then does not know the codes.
    """
    findings = Found()
    probes: dict[_NetworkKey, _Probe] = {}
    for name, client in sorted(clients.items()):
        if not client.federated:
            continue
        kind = _network_key(client)
        if kind not in probes:
            probes[kind] = _probe(client, build)
        probe = probes[kind]
        findings.meanings[name] = _meanings_of(client, probe, agreed)
        if probe.failed:
            axes = named_axes(client.module)
            findings.unknown[name] = [
                tensor for tensor in client.federated if tensor.partition("[")[0] not in axes
            ]
    return findings


@dataclass
class _Probe:
    """The tensors of a network that run along all inputs or all labels."""

    runs_along: dict[str, set[str]]
    failed: bool = False


def _network_key(client: Described) -> _NetworkKey:
    """Return a key that is equal for clients whose tensors have the same names and shapes."""
    return tuple((name, form_of(value)) for name, value in named_tensors(client.module).items())


def _probe(client: Described, build: Build) -> _Probe:
    """Find the tensors whose shape changes if the client has one more input, or other labels."""
    forms = {name: form_of(value) for name, value in named_tensors(client.module).items()}
    runs_along: dict[str, set[str]] = {}
    failed = False
    for kind, wider in _wider(client.spec).items():
        try:
            widened = named_tensors(build(wider))
        except FedlitError:
            failed = True
            continue
        changed = {
            name for name in forms if name not in widened or form_of(widened[name]) != forms[name]
        }
        runs_along[kind] = changed
    return _Probe(runs_along, failed)


def _wider(spec: ClientSpec) -> dict[str, ClientSpec]:
    """Return descriptions with one more input, and with more labels where labels are predicted. A
    number has no label: clients may predict the same one under different names, which the plan
    notes.
    """
    descriptions = {
        INPUTS: replace(spec, features=(*spec.features, "another feature"), inputs=(), common=None)
    }
    if spec.classes:
        classes = (*spec.classes, "another class", "and another")
        descriptions[LABELS] = replace(spec, classes=classes, class_rows=(), task=None)  # type: ignore[arg-type]
    return descriptions


def _meanings_of(client: Described, probe: _Probe, agreed: bool) -> dict[str, Meaning]:
    axes = named_axes(client.module)
    inputs = input_meanings(client.spec, codes=not agreed and _reads_codes(client.module))
    output_labels = client.spec.output_labels
    every = {INPUTS: list(inputs.values()), LABELS: list(output_labels)}
    slices = _slices_with_codes(axes, inputs)
    meanings: dict[str, Meaning] = {}
    for tensor in client.federated:
        if tensor in slices:
            meanings[tensor] = {INPUTS: [slices[tensor]]}
        elif tensor in axes:
            names = axes[tensor][1]
            if names != output_labels:
                meanings[tensor] = {INPUTS: [inputs.get(name, name) for name in names]}
            elif client.spec.classes:
                meanings[tensor] = {LABELS: list(names)}
        else:
            along = {
                kind: every[kind] for kind, tensors in probe.runs_along.items() if tensor in tensors
            }
            if along:
                meanings[tensor] = along
    return meanings


def _slices_with_codes(axes: Axes, inputs: Mapping[str, str]) -> dict[str, str]:
    """Map each slice whose name does not say all, because its column has codes, to what it stands
    for.
    """
    slices = {}
    for tensor, (_, labels) in axes.items():
        for label in labels:
            if inputs.get(label, label) != label:
                slices[slice_name(tensor, label)] = inputs[label]
    return slices


def _reads_codes(module: nn.Module) -> bool:
    """Return whether a module may take categories as numbers. A network that does not says so
    (``reads_codes``).
    """
    declared = [part.reads_codes for part in module.modules() if hasattr(part, "reads_codes")]
    return any(declared) or not declared


def unlike(meanings: Mapping[str, Mapping[str, Meaning]]) -> list[str]:
    """Return a sentence for each pair of clients that would average tensors of different meanings.

    Args:
        meanings: client → tensor → its meaning.

    Example:
        >>> north = {"encoder.weight": {"inputs": ["age", "crea"]}}
        >>> south = {"encoder.weight": {"inputs": ["crea", "age"]}}
        >>> unlike({"north": north, "south": south})[0].partition(";")[0]
        "encoder.weight: expected the same inputs on all clients that federate it, found age, crea
        on 'north' and crea, age on 'south'"
    """
    first: dict[str, tuple[str, Meaning]] = {}
    problems = []
    for client, tensors in sorted(meanings.items()):
        differs = None
        for tensor, meaning in tensors.items():
            first_client, expected = first.setdefault(tensor, (client, meaning))
            if differs is None and meaning != expected:
                differs = _difference(tensor, (first_client, expected), (client, meaning))
        if differs is not None:  # one of a client's many tensors is enough
            problems.append(differs)
    return problems


def _difference(tensor: str, expected: tuple[str, Meaning], actual: tuple[str, Meaning]) -> str:
    kind = next(kind for kind in (INPUTS, LABELS) if expected[1].get(kind) != actual[1].get(kind))
    part = tensor.partition(".")[0]
    return (
        f"{tensor}: expected the same {kind} on all clients that federate it, found "
        f"{_shown(expected[1].get(kind))} on {expected[0]!r} and {_shown(actual[1].get(kind))} on "
        f"{actual[0]!r}; {_REMEDY[kind]}, or keep the tensor private (exchange.federated: '!{part}')"
    )


def _shown(names: str | Sequence[str] | None) -> str:
    if not names:
        return "none"
    if isinstance(names, str):  # the digest of a site's names
        return f"the digest {names[:12]}"
    return shorten([str(name) for name in names])


def check_form(meanings: object) -> None:
    """Refuse what another process has sent unless it maps each client to the meanings of its
    tensors.

    Args:
        meanings: what it has sent.

    Raises:
        ConfigError: it has another form; the message names the client.
    """
    if not isinstance(meanings, Mapping):
        raise ConfigError(
            "meaning: expected the meanings of each client's tensors, found "
            f"{type(meanings).__name__}"
        )
    for client, tensors in meanings.items():
        if not isinstance(tensors, Mapping) or not all(
            _is_meaning(meaning) for meaning in tensors.values()
        ):
            raise ConfigError(
                f"meaning of client {client!r}: expected names or digests of inputs and labels"
            )


def _is_meaning(meaning: object) -> bool:
    if not isinstance(meaning, Mapping) or not set(meaning) <= {INPUTS, LABELS}:
        return False
    return all(isinstance(names, str | list | tuple) for names in meaning.values())


def check_meanings(meanings: Mapping[str, Mapping[str, Meaning]]) -> None:
    """Refuse a federation that would average tensors of different meanings.

    Args:
        meanings: client → tensor → its meaning.

    Raises:
        ConfigError: a tensor means different things at two clients; one message lists all problems.
            Or another process has sent something else.
    """
    check_form(meanings)
    problems = unlike(meanings)
    if problems:
        raise ConfigError(
            "exchange.federated selects tensors that do not mean the same at all clients:\n  "
            + "\n  ".join(problems)
        )


def digests_of(meaning: Meaning, key: str) -> dict[str, str]:
    """Return a meaning as digests, which can be compared without sending names.

    Args:
        meaning: names of inputs and labels.
        key: the identity of the federation. Digests of the same names differ between federations.

    Returns:
        The hexadecimal HMAC-SHA-256 of the names, for ``inputs`` and ``labels``.

    Example:
        >>> north, south = (digests_of({"inputs": names}, "a1") for names in (["age", "crea"], ["crea", "age"]))
        >>> north == south, len(north["inputs"])
        (False, 64)
    """
    digests = {}
    for kind, names in meaning.items():
        content = json.dumps([kind, list(names)], ensure_ascii=True).encode()
        digests[kind] = hmac.new(key.encode(), content, hashlib.sha256).hexdigest()
    return digests

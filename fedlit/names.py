"""Names of clients and sites, clusters of clients, and the function by which clients exchange
facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedlit.errors import expect

_Value = TypeVar("_Value")

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_DEVICES = (
    "con",
    "prn",
    "aux",
    "nul",
    *(f"com{number}" for number in range(1, 10)),
    *(f"lpt{number}" for number in range(1, 10)),
)
_LONGEST_SITE = 40


def names_a_folder(name: object, longest: int) -> bool:
    r"""Return whether a name can be that of a file or folder on any system: ASCII letters, digits,
    ``_`` and ``-``, the first a letter or digit, and none of the devices of Windows.

    Example:
        >>> [names_a_folder(name, 40) for name in ("north-2", "../..", "CON", "a\nb", "")]
        [True, False, False, False, False]
    """
    well_formed = (
        isinstance(name, str) and len(name) <= longest and _FOLDER.fullmatch(name) is not None
    )
    return well_formed and str(name).casefold() not in _DEVICES


def check_sites(key: str, names: Iterable[object]) -> None:
    """Refuse a name of a site that cannot be a file's name, or two that differ in upper and lower
    case alone, which are one file on some systems.

    Args:
        key: where the names stand, for messages.
        names: the names.

    Raises:
        ConfigError: a name does not fit.
    """
    folded_names: set[str] = set()
    for name in names:
        expected = (
            f"names of at most {_LONGEST_SITE} letters, digits, - and _ (but no device such as CON)"
        )
        expect(names_a_folder(name, _LONGEST_SITE), key, expected, name)
        again = str(name).casefold()
        expect(again not in folded_names, key, "names, none of them twice", name)
        folded_names.add(again)


Share = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Tells facts: (topic, {client: JSON facts of the clients here}) → {client: those of all clients},
ordered by name."""


Clusters = tuple[tuple[str, ...], ...]
"""Clients by cluster: names sorted within a cluster, clusters sorted by their first name."""


@dataclass(frozen=True)
class Clustering:
    """The clusters that a rule found in one exchange.

    Attributes:
        clusters: the clusters of all clients.
        pairs: maps each pair (client, client), the first before the second by name, to the number
            by which the rule compares them.
        measure: what this number is, in words.
        scalars: further numbers to log, by tag.
        paths: maps each pair (client, client) to the losses along paths between their models, at
            the midpoints of equal pieces, by path.
    """

    clusters: Clusters
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    measure: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[tuple[str, str], Mapping[str, Sequence[float]]] = field(default_factory=dict)


def sort_clusters(clusters: Iterable[Iterable[str]]) -> Clusters:
    """Return clusters in canonical order, so that equal clusterings compare equal.

    Example:
        >>> sort_clusters([{"cedar"}, {"birch", "ash"}, set()])
        (('ash', 'birch'), ('cedar',))
    """
    return tuple(sorted(names for cluster in clusters if (names := tuple(sorted(cluster)))))


class Word(str):
    """Text that would be a number, true, false or nothing if it stood bare in YAML, such as
    ``'101'``.

    jsonargparse reads a plain str again where it knows no type. It leaves this one alone.
    """

    __slots__ = ()


def plain(tree: Any) -> Any:
    """Return the same values with each :class:`Word` as a plain str.

    Example:
        >>> type(plain({"files": [Word("1e3")]})["files"][0]).__name__
        'str'
    """
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(plain(value) for value in tree)
    if isinstance(tree, Word):
        return str(tree)
    return tree


def joined(parts: Iterable[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return one dictionary with the entries of several, in their order."""
    whole = dict[str, _Value]()
    for part in parts:
        whole.update(part)
    return whole

"""Small tables with numbers, gaps and categories, and what becomes of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlit.data.agree import negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import EncodedClient, pool_clients
from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.terms import Terms

N = 20


def table(
    name: str,
    columns: dict[str, Any],
    target: Sequence[Any] | None = None,
    *,
    categorical: Sequence[str] = (),
    positive: Any = None,
    seed: int = 0,
) -> ClientTable:
    """Twenty rows by default, 60 % training, 20 % validation, 20 % test, in an order drawn from the
    seed."""
    features = pd.DataFrame(columns)
    n = len(features)
    features.index = pd.RangeIndex(100, 100 + n)
    labels = pd.Series(
        list(target) if target is not None else [0, 1] * (n // 2), index=features.index, name="y"
    )
    order = np.random.default_rng(seed).permutation(n)
    parts = np.split(order, [int(0.6 * n), int(0.8 * n)])
    return ClientTable(
        name, features, labels, dict(zip(SPLITS, parts, strict=True)), tuple(categorical), positive
    )


def clinic(*columns: str) -> ClientTable:
    """Forty rows of north, whose outcome is its age; the columns that are named, or all."""
    rng = np.random.default_rng(0)
    features = pd.DataFrame(
        {
            "age": rng.integers(20, 80, 40).astype(float),
            "town": rng.choice(["Bonn", "Köln", "Ulm"], 40),
            "smoker": rng.choice([True, False], 40),
            "stage": rng.choice([1, 2, 3], 40),
        }
    )
    target = pd.Series(np.where(features["age"] > 50, "ill", "well"), name="outcome")
    features = features[list(columns)] if columns else features
    splits = dict(zip(SPLITS, np.split(np.arange(40), [30, 34]), strict=True))
    return ClientTable(
        "north", features, target, splits, tuple(str(name) for name in features if name != "age")
    )


def encode(
    tables: Sequence[ClientTable], *, pool: bool = False, **terms: Any
) -> list[EncodedClient]:
    """All clients in one process."""
    tables = sorted(check_tables(tables), key=lambda table: table.name)
    agreement, *_ = negotiate(tables, Terms(**terms, pool=pool))
    clients = [TableEncoder(own.name, agreement).fit(own).encode(own) for own in tables]
    return [pool_clients(clients, terms.get("num_bins", 32))] if pool else clients


def numbers(seed: int = 1, n: int = N) -> np.ndarray:
    return 50 + 20 * np.random.default_rng(seed).normal(size=n)


def mixed(name: str, seed: int = 0, **more: Any) -> ClientTable:
    """Numbers with and without gaps, categories of text and of numbers."""
    generator = np.random.default_rng(seed)
    gaps = numbers(seed + 1)
    gaps[generator.choice(N, 4, replace=False)] = np.nan
    town = generator.choice(["Bonn", "Köln", "Aachen"], N).astype(object)
    town[generator.choice(N, 3, replace=False)] = None
    columns = {
        "age": numbers(seed),
        "dose": gaps,
        "town": town,
        "ward": generator.choice([1, 2, 7], N),
        **more,
    }
    return table(name, columns, categorical=("town", "ward"), seed=seed)


def matrix(client: EncodedClient, site: str | None = None) -> np.ndarray:
    """All rows of a site in the source's order."""
    splits = client.sites[site or client.spec.name].values()
    x = torch.cat([rows.x for rows in splits]).numpy()
    row = np.concatenate([rows.row for rows in splits])
    return x[np.argsort(row)]


def labels(client: EncodedClient) -> np.ndarray:
    splits = client.sites[client.spec.name].values()
    y = torch.cat([rows.y for rows in splits]).numpy()
    row = np.concatenate([rows.row for rows in splits])
    return y[np.argsort(row)]


def assert_same(one: EncodedClient, other: EncodedClient) -> None:
    """Bit-equal."""
    assert one.spec == other.spec
    pairs = [(one.train, other.train)]
    pairs += [
        (one.sites[site][split], other.sites[site][split]) for site in one.sites for split in SPLITS
    ]
    for mine, theirs in pairs:
        assert torch.equal(mine.x, theirs.x)
        assert torch.equal(mine.y, theirs.y)
        np.testing.assert_array_equal(mine.row, theirs.row)


def small_tables() -> list[ClientTable]:
    """Three clients; x is shared by two, c by two with other categories, classes overlap in
    part."""
    return [
        table(
            "b",
            {"x": 9 + numbers(4), "c": ["q", "r"] * (N // 2)},
            [1, 2] * (N // 2),
            categorical=["c"],
            seed=1,
        ),
        table(
            "a",
            {"c": ["s", "p"] * (N // 2), "z": numbers(5)},
            [3, 1] * (N // 2),
            categorical=["c"],
            seed=2,
        ),
        table("d", {"x": -2 * numbers(6)}, [1, 3] * (N // 2), seed=3),
    ]


class Given(Source):
    name = "given"
    about = "tables that a test has made"

    def __init__(self, tables: Sequence[ClientTable]) -> None:
        self.given = list(tables)

    def tables(self, seed: int) -> list[ClientTable]:
        return self.given


def reads_of(own: ClientTable) -> list[str]:
    """The bases of each row of a table of reads."""
    return ["".join(row) for row in own.features.astype(object).fillna("").to_numpy().tolist()]


def fasta(names: Sequence[str], reads: Sequence[str], labels: Sequence[str]) -> str:
    """A file of labelled reads."""
    return "".join(
        f">{name} labels={y}\n{x}\n" for name, x, y in zip(names, reads, labels, strict=True)
    )

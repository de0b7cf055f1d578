"""Names that a package hands on and imports when they are asked for, so that light commands wait for nothing heavy."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fedlit.errors import did_you_mean

__all__ = ["HOMES", "lazy_names"]

HOMES = {
    "CNN": "fedlit.nn",
    "FedProx": "fedlit.methods",
    "MOON": "fedlit.methods",
    "PFedMe": "fedlit.methods",
    "PerFedAvg": "fedlit.methods",
    "Alternating": "fedlit.methods",
    "Ditto": "fedlit.methods",
    "FedBABU": "fedlit.methods",
    "Clustering": "fedlit.names",
    "Round": "fedlit.exchange.rule",
    "FedGMCC": "fedlit.exchange.rules",
    "ByPart": "fedlit.exchange.rules",
    "Clustered": "fedlit.exchange.rules",
    "Agglomerative": "fedlit.exchange.rules",
    "IFCA": "fedlit.exchange.rules",
    "CFL": "fedlit.exchange.rules",
    "APFL": "fedlit.methods",
    "CHFL": "fedlit.methods",
    "BiLSTM": "fedlit.nn",
    "Bundled": "fedlit.data.sources",
    "ByColumn": "fedlit.data.shaping.dealing",
    "Checkpoints": "fedlit.train.callbacks",
    "ClientOverride": "fedlit.client.build",
    "ClientSpec": "fedlit.spec",
    "ColumnSplit": "fedlit.data.shaping.column_split",
    "ConceptShift": "fedlit.data.shaping.concept",
    "Covertype": "fedlit.data.sources",
    "Dirichlet": "fedlit.data.shaping.dealing",
    "Distance": "fedlit.data.shaping.dealing",
    "Exchange": "fedlit.exchange.exchange",
    "FederatedClient": "fedlit.client.client",
    "FederatedData": "fedlit.data.module",
    "FederatedLoop": "fedlit.train.loop",
    "Forest": "fedlit.methods",
    "GlobalLayers": "fedlit.nn",
    "Heart": "fedlit.data.sources",
    "EMNIST": "fedlit.data.sources",
    "HumanActivity": "fedlit.data.sources",
    "IFedAvg": "fedlit.methods",
    "Iid": "fedlit.data.shaping.dealing",
    "MLP": "fedlit.nn",
    "FedAdagrad": "fedlit.exchange.rules",
    "FedAdam": "fedlit.exchange.rules",
    "FedAvgM": "fedlit.exchange.rules",
    "FedNova": "fedlit.exchange.rules",
    "FedYogi": "fedlit.exchange.rules",
    "Mean": "fedlit.exchange.rules",
    "Median": "fedlit.exchange.rules",
    "TrimmedMean": "fedlit.exchange.rules",
    "Krum": "fedlit.exchange.rules",
    "MultiKrum": "fedlit.exchange.rules",
    "GeometricMedian": "fedlit.exchange.rules",
    "CenteredClipping": "fedlit.exchange.rules",
    "NormBound": "fedlit.exchange.rules",
    "Method": "fedlit.study.method",
    "Mixture": "fedlit.composite.mixture",
    "Mutation": "fedlit.data.shaping.mutations",
    "Network": "fedlit.nn",
    "NetworkFactory": "fedlit.nn",
    "OpenML": "fedlit.data.sources",
    "Partition": "fedlit.data.shaping.partition",
    "PooledLogistic": "fedlit.methods",
    "FedDyn": "fedlit.methods",
    "FedDynMean": "fedlit.methods",
    "Scaffold": "fedlit.methods",
    "ScaffoldMean": "fedlit.methods",
    "Populations": "fedlit.data.sources",
    "Reads": "fedlit.data.sources",
    "Rule": "fedlit.exchange.rules",
    "Run": "fedlit.run.run",
    "Shards": "fedlit.data.shaping.dealing",
    "Study": "fedlit.study.study",
    "TabM": "fedlit.nn",
    "Tables": "fedlit.data.sources",
    "VehicleSensors": "fedlit.data.sources",
    "Update": "fedlit.exchange.rules",
    "compare": "fedlit.study.compare",
    "fit_seeds": "fedlit.run.many",
    "fit_together": "fedlit.run.many",
    "load": "fedlit.run.load",
    "search": "fedlit.study.search",
    "test_together": "fedlit.run.many",
}
"""What ``import fedlit`` hands on → the module that has it."""


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name.
        homes: what it hands on → the module that has it.

    Example:
        >>> get, _ = lazy_names("numbers_of_mine", {"tau": "math"})
        >>> get("tau") > 6
        True
    """

    @cache  # jsonargparse asks for the same names hundreds of times for each configuration
    def hint(name: str) -> str:
        return did_you_mean(name, homes)

    def get(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint(name)}".rstrip("."))

    return get, lambda: sorted(homes)

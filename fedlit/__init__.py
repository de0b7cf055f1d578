"""Partial federated learning on tables whose columns, classes and distributions differ, on PyTorch Lightning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlit.aggregation import CFL, IFCA, Agglomerative, Clustered, FedGMCC, Grouping, Mean, Party, Rule, Update
    from fedlit.callbacks import Checkpoints, Exchange
    from fedlit.cli import load
    from fedlit.client import FederatedClient
    from fedlit.data.column_split import ColumnSplit
    from fedlit.data.concept import ConceptShift
    from fedlit.data.dealing import ByColumn, Dirichlet, Distance, Iid, Shards
    from fedlit.data.module import FederatedData
    from fedlit.data.mutations import Mutation
    from fedlit.data.partition import Partition
    from fedlit.data.sources import Bundled, Covertype, Heart, OpenML, Tables
    from fedlit.loop import FederatedLoop
    from fedlit.methods import APFL, CHFL, FedProx, IFedAvg
    from fedlit.nn import CNN, MLP, GlobalLayers, Network
    from fedlit.run import Run
    from fedlit.spec import ClientSpec
    from fedlit.study.compare import compare
    from fedlit.study.search import search
    from fedlit.study.study import Method, Study
    from fedlit.together import fit_seeds, fit_together, test_together

_HOMES = {
    "CNN": "fedlit.nn",
    "FedProx": "fedlit.methods",
    "Party": "fedlit.aggregation",
    "Grouping": "fedlit.aggregation",
    "FedGMCC": "fedlit.aggregation",
    "Clustered": "fedlit.aggregation",
    "Agglomerative": "fedlit.aggregation",
    "IFCA": "fedlit.aggregation",
    "CFL": "fedlit.aggregation",
    "APFL": "fedlit.methods",
    "CHFL": "fedlit.methods",
    "Bundled": "fedlit.data.sources",
    "ByColumn": "fedlit.data.dealing",
    "Checkpoints": "fedlit.callbacks",
    "ClientSpec": "fedlit.spec",
    "ColumnSplit": "fedlit.data.column_split",
    "ConceptShift": "fedlit.data.concept",
    "Covertype": "fedlit.data.sources",
    "Dirichlet": "fedlit.data.dealing",
    "Distance": "fedlit.data.dealing",
    "Exchange": "fedlit.callbacks",
    "FederatedClient": "fedlit.client",
    "FederatedData": "fedlit.data.module",
    "FederatedLoop": "fedlit.loop",
    "GlobalLayers": "fedlit.nn",
    "Heart": "fedlit.data.sources",
    "IFedAvg": "fedlit.methods",
    "Iid": "fedlit.data.dealing",
    "MLP": "fedlit.nn",
    "Mean": "fedlit.aggregation",
    "Method": "fedlit.study.study",
    "Mutation": "fedlit.data.mutations",
    "Network": "fedlit.nn",
    "OpenML": "fedlit.data.sources",
    "Partition": "fedlit.data.partition",
    "Rule": "fedlit.aggregation",
    "Run": "fedlit.run",
    "Shards": "fedlit.data.dealing",
    "Study": "fedlit.study.study",
    "Tables": "fedlit.data.sources",
    "Update": "fedlit.aggregation",
    "compare": "fedlit.study.compare",
    "fit_seeds": "fedlit.together",
    "fit_together": "fedlit.together",
    "load": "fedlit.cli",
    "search": "fedlit.study.search",
    "test_together": "fedlit.together",
}

__all__ = [
    "APFL",
    "CFL",
    "CHFL",
    "CNN",
    "IFCA",
    "MLP",
    "Agglomerative",
    "Bundled",
    "ByColumn",
    "Checkpoints",
    "ClientSpec",
    "Clustered",
    "ColumnSplit",
    "ConceptShift",
    "Covertype",
    "Dirichlet",
    "Distance",
    "Exchange",
    "FedGMCC",
    "FedProx",
    "FederatedClient",
    "FederatedData",
    "FederatedLoop",
    "GlobalLayers",
    "Grouping",
    "Heart",
    "IFedAvg",
    "Iid",
    "Mean",
    "Method",
    "Mutation",
    "Network",
    "OpenML",
    "Partition",
    "Party",
    "Rule",
    "Run",
    "Shards",
    "Study",
    "Tables",
    "Update",
    "compare",
    "fit_seeds",
    "fit_together",
    "load",
    "search",
    "test_together",
]


def __getattr__(name: str) -> Any:
    # Lazy: importing Lightning takes seconds, which `fedlit --help` must not wait for.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedlit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

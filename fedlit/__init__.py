"""Partial federated learning on tables whose columns, classes and distributions differ, on PyTorch Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlit.lazy import HOMES, lazy_names

if TYPE_CHECKING:
    from fedlit.client.build import ClientOverride
    from fedlit.client.client import FederatedClient
    from fedlit.composite.mixture import Mixture
    from fedlit.data.module import FederatedData
    from fedlit.data.shaping.column_split import ColumnSplit
    from fedlit.data.shaping.concept import ConceptShift
    from fedlit.data.shaping.dealing import ByColumn, Dirichlet, Distance, Iid, Shards
    from fedlit.data.shaping.mutations import Mutation
    from fedlit.data.shaping.partition import Partition
    from fedlit.data.sources import (
        EMNIST,
        Bundled,
        Covertype,
        Heart,
        HumanActivity,
        OpenML,
        Populations,
        Reads,
        Tables,
        VehicleSensors,
    )
    from fedlit.exchange.exchange import Exchange
    from fedlit.exchange.rules import (
        CFL,
        IFCA,
        Agglomerative,
        ByPart,
        CenteredClipping,
        Clustered,
        Clustering,
        FedAdagrad,
        FedAdam,
        FedAvgM,
        FedGMCC,
        FedNova,
        FedYogi,
        GeometricMedian,
        Krum,
        Mean,
        Median,
        MultiKrum,
        NormBound,
        Round,
        Rule,
        TrimmedMean,
        Update,
    )
    from fedlit.methods import (
        APFL,
        CHFL,
        MOON,
        Alternating,
        Ditto,
        FedBABU,
        FedDyn,
        FedDynMean,
        FedProx,
        Forest,
        IFedAvg,
        PerFedAvg,
        PFedMe,
        PooledLogistic,
        Scaffold,
        ScaffoldMean,
    )
    from fedlit.nn import CNN, MLP, BiLSTM, GlobalLayers, Network, NetworkFactory, TabM
    from fedlit.run.load import load
    from fedlit.run.many import fit_seeds, fit_together, test_together
    from fedlit.run.run import Run
    from fedlit.spec import ClientSpec
    from fedlit.study.compare import compare
    from fedlit.study.method import Method
    from fedlit.study.search import search
    from fedlit.study.study import Study
    from fedlit.train.callbacks import Checkpoints
    from fedlit.train.loop import FederatedLoop

__all__ = [
    "APFL",
    "CFL",
    "CHFL",
    "CNN",
    "EMNIST",
    "IFCA",
    "MLP",
    "MOON",
    "Agglomerative",
    "Alternating",
    "BiLSTM",
    "Bundled",
    "ByColumn",
    "ByPart",
    "CenteredClipping",
    "Checkpoints",
    "ClientOverride",
    "ClientSpec",
    "Clustered",
    "Clustering",
    "ColumnSplit",
    "ConceptShift",
    "Covertype",
    "Dirichlet",
    "Distance",
    "Ditto",
    "Exchange",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedBABU",
    "FedDyn",
    "FedDynMean",
    "FedGMCC",
    "FedNova",
    "FedProx",
    "FedYogi",
    "FederatedClient",
    "FederatedData",
    "FederatedLoop",
    "Forest",
    "GeometricMedian",
    "GlobalLayers",
    "Heart",
    "HumanActivity",
    "IFedAvg",
    "Iid",
    "Krum",
    "Mean",
    "Median",
    "Method",
    "Mixture",
    "MultiKrum",
    "Mutation",
    "Network",
    "NetworkFactory",
    "NormBound",
    "OpenML",
    "PFedMe",
    "Partition",
    "PerFedAvg",
    "PooledLogistic",
    "Populations",
    "Reads",
    "Round",
    "Rule",
    "Run",
    "Scaffold",
    "ScaffoldMean",
    "Shards",
    "Study",
    "TabM",
    "Tables",
    "TrimmedMean",
    "Update",
    "VehicleSensors",
    "compare",
    "fit_seeds",
    "fit_together",
    "load",
    "search",
    "test_together",
]


# Lazy: importing Lightning takes seconds, which `fedlit --help` must not wait for.
__getattr__, __dir__ = lazy_names(__name__, HOMES)

"""Aggregation rules: what clients receive, given what they sent. One idea per file."""

from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.adaptive import FedAdagrad, FedAdam, FedYogi
from fedlit.exchange.rules.by_part import ByPart
from fedlit.exchange.rules.cfl import CFL, Agglomerative
from fedlit.exchange.rules.clipping import CenteredClipping, NormBound
from fedlit.exchange.rules.clustered import Clustered
from fedlit.exchange.rules.fedgmcc import FedGMCC
from fedlit.exchange.rules.fednova import FedNova
from fedlit.exchange.rules.forest import GrowForest
from fedlit.exchange.rules.geometric_median import GeometricMedian
from fedlit.exchange.rules.ifca import IFCA
from fedlit.exchange.rules.krum import Krum, MultiKrum
from fedlit.exchange.rules.mean import Mean, mean
from fedlit.exchange.rules.median import Median, TrimmedMean
from fedlit.exchange.rules.mixed_effects import MixedEffects
from fedlit.exchange.rules.momentum import FedAvgM
from fedlit.exchange.rules.newton import Newton
from fedlit.exchange.rules.robust import Robust
from fedlit.exchange.rules.server import ServerOptimizer
from fedlit.names import Clustering

__all__ = [
    "CFL",
    "IFCA",
    "Agglomerative",
    "ByPart",
    "CenteredClipping",
    "Clustered",
    "Clustering",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedGMCC",
    "FedNova",
    "FedYogi",
    "GeometricMedian",
    "GrowForest",
    "Krum",
    "Mean",
    "Median",
    "MixedEffects",
    "MultiKrum",
    "Newton",
    "NormBound",
    "Robust",
    "Round",
    "Rule",
    "ServerOptimizer",
    "TrimmedMean",
    "Update",
    "mean",
]

"""Rules: what clients receive, given what they sent."""

from fedlit.aggregation.cfl import CFL, Agglomerative
from fedlit.aggregation.clustered import Clustered, Grouping
from fedlit.aggregation.fedgmcc import FedGMCC
from fedlit.aggregation.ifca import IFCA
from fedlit.aggregation.mean import Mean, mean
from fedlit.aggregation.rule import Party, Rule, Update

__all__ = [
    "CFL",
    "IFCA",
    "Agglomerative",
    "Clustered",
    "FedGMCC",
    "Grouping",
    "Mean",
    "Party",
    "Rule",
    "Update",
    "mean",
]

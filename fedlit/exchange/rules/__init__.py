"""Rules: what clients receive, given what they sent. One idea, one file."""

from fedlit.exchange.rule import Party, Rule, Update
from fedlit.exchange.rules.cfl import CFL, Agglomerative
from fedlit.exchange.rules.clustered import Clustered, Grouping
from fedlit.exchange.rules.fedgmcc import FedGMCC
from fedlit.exchange.rules.ifca import IFCA
from fedlit.exchange.rules.mean import Mean, mean

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

"""Methods that need more than a configuration. Each paper has its own file."""

from fedlit.methods.alternating import Alternating
from fedlit.methods.apfl import APFL
from fedlit.methods.chfl import CHFL
from fedlit.methods.ditto import Ditto
from fedlit.methods.fedbabu import FedBABU
from fedlit.methods.feddyn import FedDyn, FedDynMean
from fedlit.methods.fedprox import FedProx
from fedlit.methods.forest import Forest
from fedlit.methods.ifedavg import IFedAvg
from fedlit.methods.mixed_model import MixedModel
from fedlit.methods.moon import MOON
from fedlit.methods.per_fedavg import PerFedAvg
from fedlit.methods.pfedme import PFedMe
from fedlit.methods.pooled_logistic import PooledLogistic
from fedlit.methods.scaffold import Scaffold, ScaffoldMean

__all__ = [
    "APFL",
    "CHFL",
    "MOON",
    "Alternating",
    "Ditto",
    "FedBABU",
    "FedDyn",
    "FedDynMean",
    "FedProx",
    "Forest",
    "IFedAvg",
    "MixedModel",
    "PFedMe",
    "PerFedAvg",
    "PooledLogistic",
    "Scaffold",
    "ScaffoldMean",
]

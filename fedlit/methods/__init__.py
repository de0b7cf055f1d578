"""Methods that are more than a configuration: one paper, one file."""

from fedlit.methods.apfl import APFL
from fedlit.methods.chfl import CHFL
from fedlit.methods.fedprox import FedProx
from fedlit.methods.forest import Forest
from fedlit.methods.ifedavg import IFedAvg
from fedlit.methods.pooled_logistic import PooledLogistic

__all__ = ["APFL", "CHFL", "FedProx", "Forest", "IFedAvg", "PooledLogistic"]

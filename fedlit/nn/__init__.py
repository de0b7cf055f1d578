"""Networks and their building blocks."""

from fedlit.nn.bilstm import BiLSTM
from fedlit.nn.cnn import CNN
from fedlit.nn.global_layers import GlobalLayers
from fedlit.nn.mlp import MLP
from fedlit.nn.network import Network, NetworkFactory
from fedlit.nn.tabm import TabM

__all__ = ["CNN", "MLP", "BiLSTM", "GlobalLayers", "Network", "NetworkFactory", "TabM"]

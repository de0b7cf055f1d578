# What `import fedlit` hands on: the one list. It is imported lazily, for Lightning takes seconds.
from .client.build import ClientOverride as ClientOverride
from .client.client import FederatedClient as FederatedClient
from .mixture.mixture import Mixture as Mixture
from .data.module import FederatedData as FederatedData
from .data.shaping.by_distance import Distance as Distance
from .data.shaping.derived import (
    ColumnSplit as ColumnSplit,
    ConceptShift as ConceptShift,
    Subsample as Subsample,
)
from .data.shaping.mutations import Mutation as Mutation
from .data.shaping.partition import (
    ByColumn as ByColumn,
    Dirichlet as Dirichlet,
    Iid as Iid,
    Partition as Partition,
)
from .data.sources.emnist import EMNIST as EMNIST
from .data.sources.known import Covertype as Covertype, Heart as Heart
from .data.sources.hospitals import Hospitals as Hospitals
from .data.sources.openml import OpenML as OpenML
from .data.sources.populations import Populations as Populations
from .data.sources.packaged import Bundled as Bundled, Rdatasets as Rdatasets
from .data.sources.reads import Reads as Reads
from .data.sources.recordings import HumanActivity as HumanActivity
from .data.sources.tables import Tables as Tables
from .data.sources.vehicle import VehicleSensors as VehicleSensors
from .exchange.exchange import Exchange as Exchange
from .exchange.rule import Round as Round
from .exchange.rule import Rule as Rule, Update as Update
from .exchange.rules.clustered import Clustered as Clustered
from .federation import Federation as Federation
from .names import Clustering as Clustering
from .nn.bilstm import BiLSTM as BiLSTM
from .nn.cnn import CNN as CNN
from .nn.global_layers import GlobalLayers as GlobalLayers
from .nn.mlp import MLP as MLP
from .nn.network import Network as Network, NetworkFactory as NetworkFactory
from .nn.tabm import TabM as TabM
from .run.load import load as load
from .run.run import Run as Run
from .spec import ClientSpec as ClientSpec
from .study.compare import compare as compare
from .study.method import Method as Method
from .study.search import search as search
from .study.study import Study as Study
from .train.callbacks import Checkpoints as Checkpoints
from .train.loop import FederatedLoop as FederatedLoop

# methods and rules: written by tests/run/test_listed.py
from .exchange.rules.by_part import ByPart as ByPart
from .exchange.rules.clustered import Agglomerative as Agglomerative
from .exchange.rules.clustered import CFL as CFL
from .exchange.rules.clustered import IFCA as IFCA
from .exchange.rules.fedamp import FedAMP as FedAMP
from .exchange.rules.fedgmcc import FedGMCC as FedGMCC
from .exchange.rules.fedpac import FedPACMean as FedPACMean
from .exchange.rules.forest import GrowForest as GrowForest
from .exchange.rules.mean import Mean as Mean
from .exchange.rules.mixed_effects import MixedEffects as MixedEffects
from .exchange.rules.newton import Newton as Newton
from .exchange.rules.partial_likelihood import PartialLikelihood as PartialLikelihood
from .exchange.rules.prototypes import PrototypeMean as PrototypeMean
from .exchange.rules.robust import CenteredClipping as CenteredClipping
from .exchange.rules.robust import GeometricMedian as GeometricMedian
from .exchange.rules.robust import Krum as Krum
from .exchange.rules.robust import Median as Median
from .exchange.rules.robust import MultiKrum as MultiKrum
from .exchange.rules.robust import NormBound as NormBound
from .exchange.rules.robust import TrimmedMean as TrimmedMean
from .exchange.rules.server import FedAdagrad as FedAdagrad
from .exchange.rules.server import FedAdam as FedAdam
from .exchange.rules.server import FedAvgM as FedAvgM
from .exchange.rules.server import FedNova as FedNova
from .exchange.rules.server import FedYogi as FedYogi
from .methods.alternating import Alternating as Alternating
from .methods.apfl import APFL as APFL
from .methods.binary import BinaryCrossEntropy as BinaryCrossEntropy
from .methods.chfl import CHFL as CHFL
from .methods.ditto import Ditto as Ditto
from .methods.fedala import FedALA as FedALA
from .methods.fedbabu import FedBABU as FedBABU
from .methods.feddyn import FedDyn as FedDyn
from .methods.feddyn import FedDynMean as FedDynMean
from .methods.fedpac import FedPAC as FedPAC
from .methods.fedproto import FedProto as FedProto
from .methods.fedprox import FedProx as FedProx
from .methods.fedrod import FedRoD as FedRoD
from .methods.forest import Forest as Forest
from .methods.ifedavg import IFedAvg as IFedAvg
from .methods.mixed_model import MixedModel as MixedModel
from .methods.moon import MOON as MOON
from .methods.per_fedavg import PerFedAvg as PerFedAvg
from .methods.pfedme import PFedMe as PFedMe
from .methods.pooled_logistic import PooledLogistic as PooledLogistic
from .methods.scaffold import Scaffold as Scaffold
from .methods.scaffold import ScaffoldMean as ScaffoldMean
from .methods.stratified_cox import StratifiedCox as StratifiedCox

# What `import fedlit` hands on: the one list. It is imported lazily, for Lightning takes seconds.
from .client.build import ClientOverride as ClientOverride
from .client.client import FederatedClient as FederatedClient
from .mixture.mixture import Mixture as Mixture
from .data.module import FederatedData as FederatedData
from .data.shaping.by_distance import Distance as Distance
from .data.shaping.column_split import ColumnSplit as ColumnSplit
from .data.shaping.concept import ConceptShift as ConceptShift
from .data.shaping.dealing import ByColumn as ByColumn, Dirichlet as Dirichlet, Iid as Iid, Shards as Shards
from .data.shaping.mutations import Mutation as Mutation
from .data.shaping.partition import Partition as Partition, Subsample as Subsample
from .data.sources.activity import HumanActivity as HumanActivity
from .data.sources.bundled import Bundled as Bundled
from .data.sources.covertype import Covertype as Covertype
from .data.sources.heart import Heart as Heart
from .data.sources.openml import OpenML as OpenML
from .data.sources.populations import Populations as Populations
from .data.sources.rdatasets import Rdatasets as Rdatasets
from .data.sources.reads import Reads as Reads
from .data.sources.tables import Tables as Tables
from .data.sources.vehicle import VehicleSensors as VehicleSensors
from .exchange.exchange import Exchange as Exchange
from .exchange.rule import Round as Round
from .exchange.rules import (
    CFL as CFL,
    IFCA as IFCA,
    Agglomerative as Agglomerative,
    ByPart as ByPart,
    CenteredClipping as CenteredClipping,
    Clustered as Clustered,
    FedAdagrad as FedAdagrad,
    FedAdam as FedAdam,
    FedAvgM as FedAvgM,
    FedGMCC as FedGMCC,
    FedNova as FedNova,
    FedYogi as FedYogi,
    GeometricMedian as GeometricMedian,
    Krum as Krum,
    Mean as Mean,
    Median as Median,
    MultiKrum as MultiKrum,
    NormBound as NormBound,
    Rule as Rule,
    TrimmedMean as TrimmedMean,
    Update as Update,
)
from .federation import Federation as Federation
from .methods import (
    APFL as APFL,
    CHFL as CHFL,
    MOON as MOON,
    Alternating as Alternating,
    Ditto as Ditto,
    FedBABU as FedBABU,
    FedDyn as FedDyn,
    FedDynMean as FedDynMean,
    FedProx as FedProx,
    Forest as Forest,
    IFedAvg as IFedAvg,
    MixedModel as MixedModel,
    PerFedAvg as PerFedAvg,
    PFedMe as PFedMe,
    PooledLogistic as PooledLogistic,
    Scaffold as Scaffold,
    ScaffoldMean as ScaffoldMean,
)
from .names import Clustering as Clustering
from .nn import (
    CNN as CNN,
    MLP as MLP,
    BiLSTM as BiLSTM,
    GlobalLayers as GlobalLayers,
    Network as Network,
    NetworkFactory as NetworkFactory,
    TabM as TabM,
)
from .run.load import load as load
from .run.run import Run as Run
from .spec import ClientSpec as ClientSpec
from .study.compare import compare as compare
from .study.method import Method as Method
from .study.search import search as search
from .study.study import Study as Study
from .train.callbacks import Checkpoints as Checkpoints
from .train.loop import FederatedLoop as FederatedLoop

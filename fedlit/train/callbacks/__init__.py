"""Callbacks that watch a run."""

from fedlit.train.callbacks.board import Board
from fedlit.train.callbacks.checkpoint import Checkpoints
from fedlit.train.callbacks.progress import Progress
from fedlit.train.callbacks.tables import Tables

__all__ = ["Board", "Checkpoints", "Progress", "Tables"]

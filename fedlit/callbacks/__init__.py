"""When an exchange happens, and what watches a run."""

from fedlit.callbacks.board import Board
from fedlit.callbacks.checkpoint import Checkpoints
from fedlit.callbacks.corrections import Corrections
from fedlit.callbacks.exchange import Exchange
from fedlit.callbacks.grouping import Groups
from fedlit.callbacks.progress import Progress

__all__ = ["Board", "Checkpoints", "Corrections", "Exchange", "Groups", "Progress"]

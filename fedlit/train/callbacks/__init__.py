"""What watches a run."""

from fedlit.train.callbacks.board import Board
from fedlit.train.callbacks.checkpoint import Checkpoints
from fedlit.train.callbacks.corrections import Corrections
from fedlit.train.callbacks.memberships import Memberships
from fedlit.train.callbacks.progress import Progress

__all__ = ["Board", "Checkpoints", "Corrections", "Memberships", "Progress"]

"""All ways to deal the rows of a partition."""

from fedlit.data.shaping.by_column import ByColumn
from fedlit.data.shaping.by_distance import NORMAL, Distance
from fedlit.data.shaping.deal import Deal, Hand, Whole
from fedlit.data.shaping.dirichlet import Dirichlet
from fedlit.data.shaping.iid import Iid
from fedlit.data.shaping.shards import Shards

__all__ = ["NORMAL", "ByColumn", "Deal", "Dirichlet", "Distance", "Hand", "Iid", "Shards", "Whole"]

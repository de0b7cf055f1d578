"""A forest that clients grow together: extremely randomised trees (Geurts, Ernst and Wehenkel 2006,
"Extremely randomized trees", Machine Learning 63:3-42) on the rows of all clients, without moving a
row.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError, DataError, expect
from fedlit.methods.bases import Fitted
from fedlit.seeding import derive_seed
from fedlit.sharing import State
from fedlit.spec import ClientSpec
from fedlit.trees.draws import Way
from fedlit.trees.grow import finished
from fedlit.trees.nodes import Grown, find_leaves, root_keys
from fedlit.trees.party import Party

_LEAST = 1e-6
"""The share of a class that no tree predicts, so that its logarithm is finite."""


class Forest(Fitted):
    """A client whose model is a forest, which all clients grow together by answering the questions
    of :class:`~fedlit.exchange.rules.forest.GrowForest`. Its steps do nothing: each exchange adds a
    batch of trees, so that there are ``trainer.max_epochs`` × ``trees`` in the end. ``data.batches:
    1`` is enough.

    Columns have to mean the same everywhere: ``data.align: both``, and ``scaling: pooled`` or
    ``none``; so does a number that is predicted (its task's ``targets: pooled``). Codes of
    categories count as ordered numbers, as in scikit-learn. At a node that splits by a column that
    the client lacks, all its rows take a side that is drawn. A missing cell has the value that the
    encoder gives it.

    It predicts the mean over trees of numbers, or of the shares of classes in leaves (see
    :func:`fedlit.trees.grow.finished`). In the loss, a class that no tree predicts has a share of
    1e-6.

    With a minimum above 1, the client continues by itself below the leaves of the common trees: its
    rows there are split by draws of the same kind, until they are of one class. These branches
    never leave the client, so clients predict differently.

    Args:
        spec: the client's description.
        smoothing: the number of rows that are added to each leaf, with the shares of classes of all
            rows that were reported; 0 for none. If None, it is 100 divided by the number of the
            client's training rows, at most 2, and none with ``minimum: 1``.

    Raises:
        ConfigError: the task is neither classification nor regression by squared error, or the
            smoothing is below 0.

    Example:
        >>> client = Forest(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()))
        >>> client.probabilities(client(torch.zeros(1, 2))).tolist()  # before it has trees
        [[0.5, 0.5]]
    """

    requires: Mapping[str, tuple[str, ...]] = {
        "data.align": ("both",),
        "data.scaling": ("pooled", "none"),
        "exchange.rule": ("GrowForest",),
    }

    def __init__(self, spec: ClientSpec, smoothing: float | None = None) -> None:
        super().__init__(spec)
        expect(
            smoothing is None or smoothing >= 0, "Forest: smoothing", "rows, at least 0", smoothing
        )
        task = spec.task
        self.smoothing = smoothing
        if task.glm not in ("logistic", "gaussian"):
            raise ConfigError(
                f"client {spec.name!r}: Forest: expected a task of one label, or of a number with "
                f"loss: squared, found {task.title}; leave the client out, or use another "
                "model.client"
            )
        self._classes = len(task.classes)
        self._lacks = [
            place for place, name in enumerate(spec.features) if name in set(spec.absent)
        ]
        self._growing: tuple[Party, Way, Rows, bool] | None = None
        self._totals = np.zeros((0, 0), np.int64)

    # ------------------------------------------------------------------ growth

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Answer the questions of :class:`~fedlit.exchange.rules.forest.GrowForest`: ``start``,
        then ``counts``; and ``totals`` after ``start`` if only sums are revealed.
        """
        own = {name: value.cpu().numpy() for name, value in tensors.items()}
        if topic == "forest/start":
            return _tensors(self._start(own, rows))
        if self._growing is not None and topic == "forest/totals":
            return _tensors({"totals": self._totals})
        if self._growing is not None and topic == "forest/counts":
            return _tensors(self._growing[0].counts(own))
        return super().answer(topic, tensors, rows)

    def _start(self, told: Mapping[str, np.ndarray], rows: Rows) -> dict[str, Any]:
        columns = self.spec.num_features
        way = Way(
            self._classes,
            columns,
            tried=max(1, round(float(told["max_features"]) * columns)),
            thresholds=int(told["thresholds"]),
            minimum=int(told["minimum"]),
            levels=int(told["levels"]),
            summed=bool(told["summed"]),
        )
        x = rows.x.cpu().numpy()
        y = rows.y.cpu().numpy()
        try:
            party = Party(x, y, way, self._lacks, self.spec.facts_from)
        except DataError as error:
            raise DataError(f"client {self.spec.name!r}: {error}") from error
        self._growing = party, way, rows, way.minimum > 1
        begun = dict(party.start(root_keys(int(told["seed"]), int(told["trees"]))))
        if way.summed:
            self._totals = begun.pop("totals").astype(np.int64)
        task = self.spec.task
        target = (
            *task.classes,
            *task.meaning,
            getattr(task, "mean", 0.0),
            getattr(task, "scale", 1.0),
        )
        # whether they mean the same everywhere can be seen without saying what they mean
        meaning = [derive_seed(0, *map(str, own)) for own in (self.spec.features, target)]
        return {**begun, "classes": np.array(self._classes), "meaning": np.array(meaning)}

    def on_receive(self, received: State) -> None:
        """Add the trees of an exchange."""
        # the questions of an exchange begin anew
        growing = self._growing
        self._growing = None
        if "down/feature" not in received:
            return
        told = {name.removeprefix("down/"): value.cpu().numpy() for name, value in received.items()}
        leaves = told["feature"] < 0
        totals = np.zeros((len(leaves), self._classes or 3), np.int64)
        totals[leaves] = told["totals"]
        roots = int(told["trees"])
        grown = Grown(told["feature"], told["threshold"], told["child"], totals, roots)
        grown.check(self.spec.num_features)
        way = Way(self._classes, self.spec.num_features, 1)
        rows = None
        alone = False
        if growing is not None:
            _, way, rows, alone = growing
        x = (
            rows.x.cpu().numpy()
            if rows is not None
            else np.zeros((0, self.spec.num_features), np.float32)
        )
        y = rows.y.cpu().numpy() if rows is not None else np.zeros(0)
        keys = root_keys(int(told["seed"]), roots)
        grown, values = finished(
            grown, keys, way, x, y, self._lacks, alone=alone, smoothing=self.smoothing
        )
        self._add(grown, values)

    def _add(self, grown: Grown, values: np.ndarray) -> None:
        """Append new trees to the existing ones. Leaves with the same prediction share it."""
        leaves = grown.leaves
        kinds, place = np.unique(values[leaves], axis=0, return_inverse=True)
        child = grown.child.copy()
        child[leaves] = place.ravel()
        new = {
            "feature": grown.feature,
            "threshold": grown.threshold,
            "child": child,
            "values": kinds,
            "roots": np.arange(grown.roots, dtype=np.int32),
        }
        fresh = {name: torch.from_numpy(own) for name, own in new.items()}
        depth = _depth(grown)
        if (old := self.state.get("trees")) is not None:
            inner = ~torch.from_numpy(leaves)
            nodes = len(old["feature"])
            kinds_before = len(old["values"])
            fresh["child"] = fresh["child"] + torch.where(inner, nodes, kinds_before).int()
            fresh["roots"] = fresh["roots"] + nodes
            fresh = {name: torch.cat([old[name].cpu(), own]) for name, own in fresh.items()}
            depth = max(depth, self.state["depth"])
        self.state["trees"] = fresh
        self.state["depth"] = depth

    # ------------------------------------------------------------------ prediction

    def forward(self, x: Tensor) -> Tensor:
        """Return logarithms of shares, or standardised numbers.

        Shape:
            - x: (n, d) float32
            - output: (n, num_outputs)
        """
        if "trees" not in self.state:
            return x.new_zeros(x.shape[0], self.spec.num_outputs)
        trees = {name: own.to(x.device) for name, own in self.state["trees"].items()}
        values: Tensor = trees["values"][self._leaves(x, trees)].mean(1)
        if not self._classes:
            return values
        logits = values.clamp(min=_LEAST).log()
        return logits[:, 1:] - logits[:, :1] if self._classes == 2 else logits

    def _leaves(self, x: Tensor, trees: Mapping[str, Tensor]) -> Tensor:
        """Return the positions of predictions in ``values``, (n, trees)."""
        if not torch.compiler.is_exporting():
            own = {name: value.cpu().numpy() for name, value in trees.items()}
            found = find_leaves(
                x.detach().float().cpu().numpy(),
                own["feature"],
                own["threshold"],
                own["child"],
                own["roots"],
            )
            return torch.from_numpy(own["child"][found].astype(np.int64)).to(x.device)
        feature = trees["feature"].long()
        child = trees["child"].long()
        node = trees["roots"].long().expand(x.shape[0], -1)
        for _ in range(self.state["depth"]):
            column = feature[node]
            right = x.gather(1, column.clamp(min=0)) > trees["threshold"][node]
            node = torch.where(column < 0, node, child[node] + right.long())
        return child[node]


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(own, order="C")) for name, own in arrays.items()}


def _depth(grown: Grown) -> int:
    """Return the number of splits on the longest path from a root to a leaf."""
    level = np.arange(grown.roots)
    depth = 0
    while len(level := level[~grown.leaves[level]]):
        level = np.concatenate([grown.child[level], grown.child[level] + 1])
        depth += 1
    return depth

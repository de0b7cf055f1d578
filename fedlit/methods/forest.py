"""A federated forest: extremely randomised trees (Geurts, Ernst and Wehenkel 2006,
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
from fedlit.trees.draws import Growth
from fedlit.trees.grow import finished, usual_smoothing
from fedlit.trees.nodes import Grown, find_leaves, root_keys
from fedlit.trees.party import Party

_LEAST = 1e-6
"""The share of a class that no tree predicts, so that its logarithm is finite."""


class Forest(Fitted):
    """A client whose model is a federated forest, grown by answering the questions of
    :class:`~fedlit.exchange.rules.forest.GrowForest`. Its steps do nothing: each exchange adds a
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

    The time to an event is fitted by person-periods (see
    :class:`~fedlit.methods.cases.PersonPeriods`): the minimum and the ends of ranges count persons.

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

    period_input = "number"
    requires: Mapping[str, tuple[str, ...]] = {
        "data.align": ("both",),
        "data.scaling": ("pooled", "none"),
        "exchange.rule": ("GrowForest",),
    }

    def __init__(self, spec: ClientSpec, smoothing: float | None = None) -> None:
        super().__init__(spec)
        if smoothing is not None:
            expect(smoothing >= 0, "Forest: smoothing", "rows, at least 0", smoothing)
        cases = self.cases.spec
        self.smoothing = smoothing
        if cases.task.glm not in ("logistic", "gaussian"):
            raise ConfigError(
                f"client {spec.name!r}: Forest: expected a task of one label, or of a number with "
                f"loss: squared, found {spec.task.title}; leave the client out, or use another "
                "model.client"
            )
        self._classes = len(cases.task.classes)
        absent = set(spec.absent)
        self._lacks = [column for column, name in enumerate(cases.features) if name in absent]
        self._growing: tuple[Party, Growth, Rows] | None = None
        self._totals = np.zeros((0, 0), np.int64)

    # ------------------------------------------------------------------ growth

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Answer the questions of :class:`~fedlit.exchange.rules.forest.GrowForest`: ``start``,
        then ``counts``; and ``totals`` after ``start`` if only sums are revealed.
        """
        question = {name: value.cpu().numpy() for name, value in tensors.items()}
        if topic == "forest/start":
            return _tensors(self._start(question, rows))
        if self._growing is not None and topic == "forest/totals":
            return _tensors({"totals": self._totals})
        if self._growing is not None and topic == "forest/counts":
            return _tensors(self._growing[0].counts(question))
        return super().answer(topic, tensors, rows)

    def _start(self, question: Mapping[str, np.ndarray], rows: Rows) -> dict[str, Any]:
        columns = self.cases.spec.num_features
        growth = Growth(
            self._classes,
            columns,
            tried=max(1, round(float(question["max_features"]) * columns)),
            thresholds=int(question["thresholds"]),
            minimum=int(question["minimum"]),
            levels=int(question["levels"]),
            summed=bool(question["summed"]),
        )
        cases = self.cases.of(rows)
        x = cases.x.cpu().numpy()
        y = cases.y.cpu().numpy()
        facts_from = self.cases.behind(self.spec.facts_from)
        least = self.cases.least(growth.minimum)
        try:
            party = Party(x, y, growth, self._lacks, facts_from, least)
        except DataError as error:
            raise DataError(f"client {self.spec.name!r}: {error}") from error
        self._growing = party, growth, rows
        start = dict(party.start(root_keys(int(question["seed"]), int(question["trees"]))))
        if growth.summed:
            self._totals = start.pop("totals").astype(np.int64)
        task = self.spec.task
        target = (
            *task.classes,
            *task.meaning,
            getattr(task, "mean", 0.0),
            getattr(task, "scale", 1.0),
        )
        # Digests show whether columns and targets mean the same everywhere without revealing them.
        features = self.cases.spec.features
        digests = [derive_seed(0, *map(str, parts)) for parts in (features, target)]
        return {**start, "classes": np.array(self._classes), "meaning": np.array(digests)}

    def on_receive(self, received: State) -> None:
        """Add the trees of an exchange."""
        growing = self._growing
        self._growing = None  # Each exchange begins with the first question.
        if "down/feature" not in received:
            return
        arrays = {
            name.removeprefix("down/"): value.cpu().numpy() for name, value in received.items()
        }
        leaves = arrays["feature"] < 0
        totals = np.zeros((len(leaves), self._classes or 3), np.int64)
        totals[leaves] = arrays["totals"]
        roots = int(arrays["trees"])
        grown = Grown(arrays["feature"], arrays["threshold"], arrays["child"], totals, roots)
        columns = self.cases.spec.num_features
        grown.check(columns)
        count = 0
        if growing is None:  # The client only receives the trees, which others grew.
            growth = Growth(self._classes, columns, 1)
            x = np.zeros((0, columns), np.float32)
            y = np.zeros(0)
        else:
            _, growth, rows = growing
            count = len(rows)
            cases = self.cases.of(rows)
            x = cases.x.cpu().numpy()
            y = cases.y.cpu().numpy()
        alone = growth.minimum > 1
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = usual_smoothing(count, alone=alone)
        keys = root_keys(int(arrays["seed"]), roots)
        grown, values = finished(
            grown, keys, growth, x, y, self._lacks, alone=alone, smoothing=smoothing
        )
        self._add(grown, values)

    def _add(self, grown: Grown, values: np.ndarray) -> None:
        """Append new trees to the existing ones. Leaves with the same prediction share it."""
        leaves = grown.leaves
        predictions, prediction_of = np.unique(values[leaves], axis=0, return_inverse=True)
        child = grown.child.copy()
        child[leaves] = prediction_of.ravel()
        arrays = {
            "feature": grown.feature,
            "threshold": grown.threshold,
            "child": child,
            "values": predictions,
            "roots": np.arange(grown.roots, dtype=np.int32),
        }
        trees = {name: torch.from_numpy(array) for name, array in arrays.items()}
        depth = _depth(grown)
        if (old := self.state.get("trees")) is not None:
            inner = ~torch.from_numpy(leaves)
            nodes = len(old["feature"])
            old_predictions = len(old["values"])
            trees["child"] = trees["child"] + torch.where(inner, nodes, old_predictions).int()
            trees["roots"] = trees["roots"] + nodes
            trees = {name: torch.cat([old[name].cpu(), new]) for name, new in trees.items()}
            depth = max(depth, self.state["depth"])
        self.state["trees"] = trees
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
        return self.cases.outputs(self._of_cases, x)

    def _of_cases(self, x: Tensor) -> Tensor:
        """Return the outputs for cases."""
        trees = {name: tensor.to(x.device) for name, tensor in self.state["trees"].items()}
        values: Tensor = trees["values"][self._leaves(x, trees)].mean(1)
        if not self._classes:
            return values
        logits = values.clamp(min=_LEAST).log()
        return logits[:, 1:] - logits[:, :1] if self._classes == 2 else logits

    def _leaves(self, x: Tensor, trees: Mapping[str, Tensor]) -> Tensor:
        """Return the positions of predictions in ``values``, (n, trees)."""
        if not torch.compiler.is_exporting():
            arrays = {name: value.cpu().numpy() for name, value in trees.items()}
            leaves = find_leaves(
                x.detach().float().cpu().numpy(),
                arrays["feature"],
                arrays["threshold"],
                arrays["child"],
                arrays["roots"],
            )
            return torch.from_numpy(arrays["child"][leaves].astype(np.int64)).to(x.device)
        feature = trees["feature"].long()
        child = trees["child"].long()
        node = trees["roots"].long().expand(x.shape[0], -1)
        for _ in range(self.state["depth"]):
            column = feature[node]
            right = x.gather(1, column.clamp(min=0)) > trees["threshold"][node]
            node = torch.where(column < 0, node, child[node] + right.long())
        return child[node]


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(array, order="C")) for name, array in arrays.items()}


def _depth(grown: Grown) -> int:
    """Return the number of splits on the longest path from a root to a leaf."""
    level = np.arange(grown.roots)
    depth = 0
    while len(level := level[~grown.leaves[level]]):
        level = np.concatenate([grown.child[level], grown.child[level] + 1])
        depth += 1
    return depth

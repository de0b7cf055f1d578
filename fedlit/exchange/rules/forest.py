"""The rule that grows a forest from the rows of all clients."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import AnswerForm, Own
from fedlit.exchange.rule import DOWN, Facts, Need, Round, Rule, demand
from fedlit.seeding import derive_seed
from fedlit.sharing import Sharing, State
from fedlit.trees.draws import Growth
from fedlit.trees.grow import grow
from fedlit.trees.nodes import LARGEST, Grown, root_keys
from fedlit.trees.party import Arrays

_log = logging.getLogger(__name__)


class GrowForest(Rule):
    """Grows a batch of extremely randomised trees in each exchange, level by level, by asking
    clients of :class:`fedlit.Forest` for sums.

    Every draw is a function of the round's seed, the tree and the path from its root to a node, so
    no draw has to be sent. A threshold is drawn from the part of a column's range that a node's
    ancestors leave; if it puts all rows on one side, the range shrinks to it, and it is drawn
    again, at most 12 times. Clients send how many of a node's rows, of each class, are not above a
    threshold; for a number they send rows, sum and sum of squares, in multiples of 1/65536. These
    are added. Sent back are the split of each node, by the number of its threshold, and which
    thresholds had no row on a side. With ``minimum: 1`` the trees are bit-for-bit those of pooled
    rows.

    Thresholds do not travel. A client draws them itself and answers for no others; it refuses
    ranges of columns that do not hold its own, and claims about thresholds that its own rows
    contradict.

    The counts reveal how many of a client's rows of each class are in every node: with ``minimum:
    1``, down to single rows and bounds of their values. With a minimum of k, no count of 1 to k − 1
    is sent: if a split puts fewer of a client's rows of a class on one side, all of them are
    counted on the other, and a class of fewer rows is not sent at all; below the leaves of the
    common trees, the client continues by itself. Sums of a number are sent for k rows or more. Two
    thresholds of a node and column with fewer than k of a client's rows (of a class) between them
    count as one, so that no difference of counts in a node is from 1 to k − 1. This does not
    guarantee privacy: the counts of many trees say more than those of one, down to single rows.

    Args:
        trees: the number of trees grown in each exchange.
        thresholds: the number drawn for each column of a node; the first that leaves rows on both
            sides is used.
        minimum: the smallest number of a client's rows (of a class, if there are classes) that is
            sent; 1 sends all.
        max_features: the share of the columns that a node tries.
        levels: how often clients are asked for counts in an exchange, at most; nodes that are open
            then are leaves.
        summed: whether clients send counts for every open node and class, even if they have no rows
            there, so that the rule needs only the sum of their answers (masked sums). The trees are
            the same; single counts then need not be sent, but the range of each column is.

    Raises:
        ConfigError: values out of range.

    Example:
        >>> GrowForest(trees=50).asks.partition(":")[0]
        'sums over its rows in the nodes of 50 growing trees, level by level (some 30 to 50
        questions, at most 100)'
    """

    sends = "the trees: columns, thresholds, and the sums of each leaf"

    def __init__(
        self,
        trees: int = 25,
        thresholds: int = 2,
        minimum: int = 5,
        max_features: float = 1.0,
        summed: bool = False,
        levels: int = 100,
    ) -> None:
        demand(trees >= 1, "GrowForest: trees", "at least 1", trees)
        demand(1 <= thresholds <= LARGEST, "GrowForest: thresholds", f"1 to {LARGEST}", thresholds)
        demand(minimum >= 1, "GrowForest: minimum", "at least 1 row (1 tells every count)", minimum)
        demand(
            0 < max_features <= 1,
            "GrowForest: max_features",
            "a share of the columns in (0, 1]",
            max_features,
        )
        demand(levels >= 1, "GrowForest: levels", "at least 1", levels)
        self.levels = levels
        self.trees = trees
        self.thresholds = thresholds
        self.minimum = minimum
        self.max_features = float(max_features)
        self.summed = summed
        self.needs = frozenset[Need]({"answers"})
        if not summed:
            self.needs |= frozenset[Need]({"states"})
        self._limits = {
            "trees": trees,
            "thresholds": thresholds,
            "minimum": minimum,
            "max_features": float(max_features),
            "summed": summed,
            "levels": levels,
        }
        added = frozenset[str]()
        sums = ""
        if summed:
            added = frozenset({"forest/counts", "forest/totals"})
            sums = "of all nodes and classes, so that sums over clients do; "
        self.facts = Facts(by_questions=True, questions=self._questions(), adds_answers=added)
        settings = "counts of single rows are sent: minimum is 1"
        if minimum > 1:
            settings = f"no number of rows from 1 to {minimum - 1} is sent"
        self.asks = (
            f"sums over its rows in the nodes of {trees} growing trees, level by level (some 30 to "
            f"50 questions, at most {levels}): how many, of each class, are not above a threshold, "
            "or their number, sum and sum of squares; and once the range of each column, in whole "
            f"numbers; {sums}{settings}. In each round, a row's value in a column is compared with at "
            f"most {trees * levels * thresholds:,} thresholds ({thresholds} in each of {levels} "
            f"levels of {trees} trees): unless sums are masked, the counts of many trees come down "
            "to single rows"
        )

    def _questions(self) -> dict[str, QuestionTerms]:
        """Return the bounds of what is asked. What begins says the limits, and all else counts on
        them.
        """
        dtypes = {bool: "bool", int: "int64", float: "float64"}
        scalars = {
            name: (dtypes[type(value)], ()) for name, value in {"seed": 0, **self._limits}.items()
        }
        start = QuestionTerms(scalars, times=1, values=self._limits, seeds={"seed": "forest"})
        nodes = {
            "low": ("float32", ("columns",)),
            "high": ("float32", ("columns",)),
            "keep": ("bool", ("nodes", 2)),
            "open": ("bool", (self.trees,)),
            "feature": ("int16", ("nodes",)),
            "number": ("uint8", ("nodes",)),
            "empty": ("uint8", ("columns", self.thresholds, "nodes")),
        }
        numbers = {"forest/start": start, "forest/counts": QuestionTerms(nodes, times=self.levels)}
        if self.summed:
            numbers["forest/totals"] = QuestionTerms({}, times=1)
        return numbers

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse federated tensors, which this rule does not use."""
        actual = f"patterns that match {sharing.all_names[:1]}"
        expected = "[] with GrowForest, which works by questions"
        mend = "set exchange.federated: []"
        demand(not sharing.all_names, "exchange.federated", expected, actual, mend)

    def __call__(self, round: Round) -> Mapping[str, State]:
        """Grow trees and send them to all clients."""
        clients = list(round.updates)
        ask = _Asking(round)
        seed = derive_seed(round.seed, "forest")
        start = {key: np.array(value) for key, value in {"seed": seed, **self._limits}.items()}
        # Only clients know how many columns and sums there are.
        begun: dict[str, tuple[int | None, ...]] = {
            "low": (None,),
            "high": (None,),
            "classes": (),
            "meaning": (2,),
        }
        if not self.summed:
            begun["totals"] = (self.trees, None)
        starts = ask("start", [start] * len(clients), [begun] * len(clients))
        self._refuse_others(clients, starts)
        columns = len(starts[0]["low"])
        classes = int(starts[0]["classes"])
        tried = max(1, int(np.rint(self.max_features * columns)))
        growth = Growth(
            classes, columns, tried, self.thresholds, self.minimum, self.levels, summed=self.summed
        )
        if self.summed:
            box = {
                "low": np.min([one["low"] for one in starts], 0),
                "high": np.max([one["high"] for one in starts], 0),
            }
            (totals,) = ask.sum("totals", [{}], [{"totals": (self.trees, classes or 3)}])
            grown = grow(ask.sum, [{**totals, **box}], root_keys(seed, self.trees), growth)
        else:
            grown = grow(ask, starts, root_keys(seed, self.trees), growth)
        if len(grown.feature) == grown.roots:
            _log.warning(
                "exchange %d: no node was split together: too few rows for GrowForest.minimum "
                "(%d), or nothing to split by; each client's trees are its own",
                round.number + 1,
                self.minimum,
            )
        self.scalars = {"nodes": float(len(grown.feature)), "questions": float(ask.count)}
        sent = {f"{DOWN}{key}": value for key, value in _sent(grown, seed).items()}
        return dict.fromkeys(round.receivers, sent)

    def _refuse_others(self, clients: Sequence[str], starts: Sequence[Arrays]) -> None:
        for name, start in zip(clients, starts, strict=True):
            columns, target = start["meaning"] == starts[0]["meaning"]
            subject = "classes" if columns else "columns"
            advice = "data.align: both"
            if columns and not start["classes"]:
                subject = "units of the target"
                advice = "the task's targets: pooled"
            same = f"the {subject} of {clients[0]!r}, which GrowForest needs"
            demand(columns and target, f"client {name!r}", same, "others", f"set {advice}")


_Shapes = Mapping[str, tuple[int | None, ...]]
_Question = Mapping[str, NDArray]


class _Asking:
    """Asks the clients of a round, in arrays.

    Attributes:
        count: the number of times that they were asked.
    """

    def __init__(self, round: Round) -> None:
        self.count = 0
        self._round = round
        self._clients = list(round.updates)

    def __call__(
        self, topic: str, questions: Sequence[_Question | None], shapes: Sequence[_Shapes]
    ) -> list[Arrays]:
        """Ask each client its own question, and return the answers in the order of clients. A
        client whose question is None is not asked.
        """
        self.count += 1
        question_of = {}
        for name, question, expected in zip(self._clients, questions, shapes, strict=True):
            if question is not None:
                tensors = {key: _tensor(value) for key, value in question.items()}
                forms = {
                    key: AnswerForm(_TYPES.get(key, _WHOLE), shape)
                    for key, shape in expected.items()
                }
                question_of[name] = Own(f"forest/{topic}", tensors, forms)
        answers = self._round.ask(question_of)
        return [_arrays(answers.get(name, {})) for name in self._clients]

    def sum(
        self, topic: str, questions: Sequence[_Question | None], shapes: Sequence[_Shapes]
    ) -> list[Arrays]:
        """Ask all clients one question, and return the sum of their answers as the only answer."""
        number = len(self._clients)
        return [_added(self(topic, list(questions) * number, list(shapes) * number))]


_WHOLE = ("uint8", "int16", "int32", "int64", "uint64")
_TYPES = {"low": ("float32",), "high": ("float32",)}


def _arrays(answer: Mapping[str, Tensor]) -> Arrays:
    return {key: value.numpy() for key, value in answer.items()}


def _added(answers: Sequence[Arrays]) -> Arrays:
    total = {}
    for key in answers[0]:
        total[key] = np.sum([answer[key] for answer in answers], 0)
    return total


def _tensor(array: NDArray) -> Tensor:
    return torch.from_numpy(np.asarray(array, order="C"))


def _sent(grown: Grown, seed: int) -> dict[str, Tensor]:
    """Return the trees as clients receive them. Clients do not need the sums of nodes that are
    split.
    """
    totals = grown.totals[grown.leaves]
    small = totals.size and np.abs(totals).max() <= np.iinfo(np.int16).max
    if small:
        totals = totals.astype(np.int16)
    sent: dict[str, NDArray] = {
        "feature": grown.feature,
        # A leaf has no threshold, and no number that travels is infinite.
        "threshold": np.where(grown.leaves, np.float32(0), grown.threshold),
        "child": grown.child,
        "totals": totals,
        "seed": np.array(seed),
        "trees": np.array(grown.roots),
    }
    return {name: _tensor(value) for name, value in sent.items()}

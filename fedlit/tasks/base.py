"""The interface of a task: what is predicted for a row, which loss is minimised, and which scores
evaluate it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from fedlit.errors import ConfigError, DataError
from fedlit.outcomes import Outcome
from fedlit.outcomes.base import Columns, Family
from fedlit.outcomes.models import Fitted
from fedlit.tasks.frames import WEIGHT
from fedlit.tasks.scores import COMPARED, add_task
from fedlit.tasks.scores import LOSS as LOSS
from fedlit.tasks.scores import Score as Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import balanced
from fedlit.tasks.weighing import weighted_mean as weighted_mean
from fedlit.types import Label, PredictionArray

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from fedlit.tasks.go_alone import GoAlone

Facts = Mapping[str, Any]
"""What a client sends about its target before training, as plain data: see :meth:`Task.facts`. The
task that wrote the facts reads them again, after their types have been checked."""

Scorer = Callable[[Tensor | None], dict[str, Tensor]]
"""Scores by name of the same predictions, for counts (n,) int64 that say how often each row counts;
once if None."""


class Task(ABC):
    """The prediction task of a client. Clients of one federation may have different tasks around a
    shared core.

    A task is a value object, a frozen dataclass of plain values. It contains what was learnt about
    the target (labels, mean), and nothing about single rows. A task that does not ship with fedlit
    is named by the path of its class (``task: my_tasks.Claims``), and needs no other entry.

    Attributes:
        name: the name in configurations; of a task that does not ship with fedlit, the path of its
            class.
        outcome_type: what predictions of the task mean.
        scores: the scores of predictions, the main one first; ``loss`` is among them.
        study_scores: the names of the scores that studies show if they name none; the first three
            if empty.
        more_facts: the names of further numbers that a client may send about its target before
            training, see :meth:`facts`.
        fact_lists: the names of further lists of numbers that a client may send, likewise.
        more_settings: further keys that a configuration may add to the name, whose values
            :meth:`check` checks.
        choices: maps each key that a configuration may add to the name to its possible values, of
            which the first is the default.
        go_alone: the scikit-learn models that a client can fit without other clients, by name.
        weighs_rows: whether loss and scores can weigh rows.
        classes: the labels that can be predicted, one or several for each row; empty if a number is
            predicted.
        class_rows: the number of training rows of each class.
    """

    name: ClassVar[str]
    outcome_type: ClassVar[type[Outcome]]
    scores: ClassVar[tuple[Score, ...]]
    study_scores: ClassVar[tuple[str, ...]] = ()
    more_facts: ClassVar[tuple[str, ...]] = ()
    fact_lists: ClassVar[tuple[str, ...]] = ()
    more_settings: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    go_alone: ClassVar[Mapping[str, GoAlone]]
    weighs_rows: ClassVar[bool] = True
    classes: tuple[Label, ...] = ()
    class_rows: tuple[int, ...] = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Name the task, and add its scores and local baselines to those that are known.

        Raises:
            ConfigError: a task that does not ship with fedlit has a name of its own, by which
                nobody could find it.
        """
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(f"{__package__}."):
            return
        path = f"{cls.__module__}.{cls.__qualname__}"
        if "name" in vars(cls):
            raise ConfigError(
                f"{path}: expected no name, found {cls.name!r}; leave it out: the task's name is "
                f"{path}"
            )
        cls.name = path
        add_task(getattr(cls, "scores", ()), getattr(cls, "go_alone", {}))

    # ------------------------------------------------------------------ the target

    @classmethod
    def check(cls, settings: Mapping[str, Any]) -> None:
        """Refuse invalid values of :attr:`more_settings`.

        Raises:
            ConfigError: a value is invalid.
        """
        return

    @classmethod
    @abstractmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, Any], positive: Label | None = None
    ) -> Facts:
        """Return everything that a client may send about its target, as plain data.

        Args:
            target: the target of the training rows.
            settings: the choices that differ from the default, and ``facts_from``, the least
                number of rows behind each value that is sent.
            positive: the label that counts as positive if there are two; the larger one if None.

        Raises:
            DataError: the task cannot predict this target.
        """

    @classmethod
    def plausible(cls, facts: Facts) -> bool:
        """Return whether another site's facts, whose types have been checked, can be those of such
        a target.
        """
        return True

    @classmethod
    def check_peer(cls, client: str, facts: Facts, peer: str, facts_of_peer: Facts) -> None:
        """Refuse a client whose task has other settings, such as the unit of its times, than that of
        a peer with which it agrees.

        Raises:
            DataError: they differ.
        """
        settings = facts.get("settings")
        of_peer = facts_of_peer.get("settings")
        if settings != of_peer:
            raise DataError(
                f"client {client!r}, task: {cls.name}: expected the settings of {peer!r}, "
                f"{of_peer:.200}, found {settings:.200}; write the same for all clients, and "
                "convert numbers that are in another unit (convert)"
            )

    @classmethod
    def of_another(cls, facts: Facts) -> Facts:
        """Return facts that another client of the federation might send, by which a client plans
        alone: by default, its own. A task overrides it if a client of few rows says too little to
        agree on anything with its like.
        """
        return facts

    @classmethod
    def rows_behind(cls, facts: Facts) -> dict[str, int]:
        """Return the number of training rows behind each number among a client's facts, by name."""
        sent = ("mean", "variance", *cls.more_facts, *cls.fact_lists)
        return {name: int(facts["count"]) for name in sent if name in facts}

    @classmethod
    @abstractmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task of a client, given the facts of the clients that agree on it.

        Args:
            client: the client's name.
            facts: maps the client, and every client whose outputs shall mean the same, to its
                facts.

        Raises:
            DataError: nothing can be learnt from such a target.
        """

    @abstractmethod
    def encode(self, target: pd.Series) -> Tensor:
        """Return the target as a tensor (n,), (n, labels) or (n, positions), of the dtype that
        ``loss`` takes.
        """

    def unknown(self, rows: int) -> Tensor:
        """Return an entirely unknown target, in the format of ``encode``."""
        if self.classes:
            return torch.full((rows,), -1)
        return torch.full((rows,), math.nan)

    def fit(self, y: Tensor) -> Self:
        """Return the task with the number of training rows of each class, counted in the encoded
        target.
        """
        if not self.classes:
            return self
        have = tuple(torch.bincount(y[y >= 0], minlength=len(self.classes)).tolist())
        return replace(self, class_rows=have)  # type: ignore[type-var]  # tasks are dataclasses

    def label_rows(self, y: Tensor) -> dict[str, int]:
        """Map each label in an encoded target to the number of rows that have it; empty if a number
        is predicted.
        """
        rows = y.reshape(len(y), -1)
        counts = {
            str(label): int((rows == position).any(1).sum())
            for position, label in enumerate(self.classes)
        }
        return {label: count for label, count in counts.items() if count}

    def known(self, y: Tensor) -> Tensor:
        """Return which rows have a target that can be predicted, (n,) bool."""
        return y == y

    def unseen(self, y: Tensor) -> Tensor:
        """Return where the target has a label that no training row has, a bool tensor."""
        return ~self.known(y)

    def remarks(self, y: Tensor) -> list[str]:
        """Return what the user should know about the encoded target of the training rows."""
        return []

    @property
    def label_counts(self) -> dict[str, tuple[int, int]]:
        """For each label that is a column of its own: the training rows that have it, and those in
        which it is known.

        It is empty if labels are no columns.
        """
        return {}

    def counted(self, y: Tensor) -> Tensor:
        """Return the number of terms of which the loss is the mean: the number of rows with a known
        target.
        """
        return self.known(y).sum()

    # ------------------------------------------------------------------ outputs

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The width of the network's output for a row."""

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """The name of each output, for the user."""

    @property
    def meaning(self) -> tuple[str, ...]:
        """What the outputs mean, for the user. It is equal for tasks whose outputs mean the same,
        so that their heads may be averaged.
        """
        return tuple(map(str, self.classes))

    @property
    @abstractmethod
    def described(self) -> Facts:
        """The description of the task in a plan: plain data, with ``classes``."""

    @property
    def agreed_settings(self) -> dict[str, Any]:
        """The settings with which a client that agrees with nobody gets the same scores."""
        return {}

    @property
    def title(self) -> str:
        """The task for messages: its name, with the choices that determine its loss."""
        return self.name

    @property
    def fingerprint(self) -> str:
        """What was learnt about the target beyond :attr:`classes`, by which a checkpoint recognises
        its data.
        """
        return repr(self)

    @property
    def target_unit(self) -> tuple[str, float] | None:
        """The name and the scale of the target if scores are in its unit, so that units can be
        compared; otherwise None.
        """
        return None

    @property
    def periods(self) -> tuple[str, ...]:
        """The names of the periods of which each is a case of yes or no for models of single labels
        (see :meth:`cases`); empty if a row is one case.
        """
        return ()

    def cases(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cases of a target with periods: the position of each case's row and of its
        period, int64, and whether it is a yes, bool, (cases,) each. Rows keep their order.
        """
        raise NotImplementedError

    def outputs_of_cases(self, logits: Tensor) -> Tensor:
        """Return the outputs (n, outputs) of which these are the cases' logits (n, periods)."""
        raise NotImplementedError

    @property
    def glm(self) -> Family | None:
        """The generalised linear model whose negative log-likelihood the loss is: ``logistic`` for
        one of several labels, ``gaussian`` for the squared error, ``poisson`` for counts; None if
        it is none of them.
        """
        return None

    @property
    def alike(self) -> Hashable:
        """A key that is equal for tasks whose loss is the same function of (outputs, y, weight)."""
        return self.name

    def balance(self) -> Tensor | None:
        """Return a weight for each class by which all classes count equally, see
        :func:`fedlit.tasks.weighing.balanced`; None if there are no classes.
        """
        if not self.classes:
            return None
        return balanced(self.class_rows)

    @abstractmethod
    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the loss to minimise, which is a mean over rows, as a scalar.

        Args:
            outputs: (n, outputs).
            y: the target in the format of ``encode``.
            weight: the weight of each class, in the format of :meth:`balance`.
            rows: (n,) how much each row counts; once if None. Whole numbers are as many equal rows.
        """

    def row_losses(self, outputs: Tensor, y: Tensor) -> Tensor | None:
        """Return the loss of each row (n,), whose mean, weighted by the class of the row, is
        ``loss``; None if the loss is another one, as by default.

        Args:
            outputs: (n, outputs).
            y: the target in the format of ``encode``.
        """
        return None

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Return predictions (n, width) float32 or float64, in the user's units: probabilities, or
        a number.
        """

    def bounded(self, outputs: Tensor) -> Tensor:
        """Return outputs (…, outputs) as numbers in [0, 1] of the same shape, for rules that
        compare functions.
        """
        return one_of(outputs)

    def of_members(self, outputs: Tensor) -> Tensor:
        """Combine the outputs of an ensemble's members (n, members, outputs) into outputs (n,
        outputs), from which :meth:`predict` computes the mean of the members' predictions.
        """
        return outputs.mean(1)

    def as_input(self, outputs: Tensor) -> Tensor:
        """Return these outputs as inputs for another network, (n, :attr:`input_width`)."""
        return self.predict(outputs)

    @property
    def input_width(self) -> int:
        """The width of :meth:`as_input`."""
        return self.outputs

    @property
    def outcome(self) -> Outcome:
        """What the task's predictions mean, in a form that does not need PyTorch."""
        return self.outcome_type.of(vars(self))

    def of_model(self, model: Fitted, x: PredictionArray) -> Tensor:
        """Return the predictions of a fitted scikit-learn model for rows (n, d), in the format of
        :meth:`predict`.
        """
        return torch.from_numpy(self.outcome.of_model(model, x))

    # ------------------------------------------------------------------ scores

    @classmethod
    def shown_scores(cls) -> list[str]:
        """Return the names of the scores that studies show if they name none."""
        compared = [score.name for score in cls.scores if score.name in COMPARED]
        return list(cls.study_scores) or compared[:3]

    def at(self, classes: Sequence[int]) -> Self:
        """Return the task for a site whose training rows have only some of the classes, given by
        their positions.
        """
        chosen = {}
        for key, value in vars(self).items():
            if isinstance(value, tuple) and value:
                chosen[key] = tuple(value[position] for position in classes)
        return replace(self, **chosen)  # type: ignore[type-var]  # tasks are dataclasses

    def narrow(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        loss: Tensor,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions, target and mean loss of a batch for the task of such a site, see
        :meth:`at`.
        """
        return predictions, y, loss

    def narrow_many(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        losses: Tensor,
        batches: Segments,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what :meth:`narrow` returns for each of many batches, whose rows count alike.

        Args:
            classes: the positions of the classes of all their sites.
            predictions: (n, width) the rows of one batch after the other.
            y: their target.
            losses: (batches,) float32.
            batches: which rows belong to which batch.
        """
        narrowed, y, _ = self.narrow(classes, predictions, y, losses)
        return narrowed, y, losses

    @classmethod
    def evaluate_many(
        cls, tasks: Sequence[Self], predictions: Tensor, y: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """Return the scores of many clients, bit for bit those that :meth:`evaluate` returns for
        each. A class that does not define this method itself, such as a subclass with other scores,
        is evaluated client by client.

        Args:
            tasks: the task of each client.
            predictions: (n, width) float, the rows of one client after the other. Each client has a
                row, and its predictions are finite.
            y: their target.
            clients: which rows belong to which client.

        Returns:
            Scores by name, each (clients,).
        """
        raise NotImplementedError

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Return a function that computes the scores of these predictions for any counts. What does
        not depend on counts is computed only once.

        With counts that are all one, it returns the same bits as with None; with any counts, the
        same as for rows that are repeated so often.

        Args:
            predictions: (n, width) float.
            y: the target in the format of ``encode``.

        Returns:
            A function that returns scalars by name, without the loss; NaN if a score is undefined.
            Counts may be floats, for weights of rows.
        """
        undefined = {}
        for entry in self.scores:
            if entry is not LOSS and not entry.test_only:
                value = 0.0 if entry.context else math.nan
                undefined[entry.name] = predictions.new_tensor(value)
        if len(y) == 0 or not bool(torch.isfinite(predictions).all()):
            return lambda counts: dict(undefined)
        score = self._scorer(predictions, y)

        def scored(counts: Tensor | None) -> dict[str, Tensor]:
            if counts is not None and not float(counts.sum()):
                return dict(undefined)
            return score(counts)

        return scored

    @abstractmethod
    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Return the function of :meth:`scorer` for at least one row of finite predictions, and for
        counts that are not all 0.
        """

    def evaluate(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return exact scores by name, see :meth:`scorer`."""
        return self.scorer(predictions, y)(counts)

    def evaluate_once(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, float]:
        """Return the scores that are computed on test rows only."""
        return {}

    def confusion(self, predictions: Tensor, y: Tensor) -> Tensor | None:
        """Return the numbers of rows by true class (the last row is for labels that are no class)
        and predicted class; None without classes.
        """
        return None

    @abstractmethod
    def written(self, y: Tensor) -> Columns:
        """Return the target as columns for the user: ``target``, or ``target_<label>`` for each of
        several labels.
        """

    def frame(
        self, row: np.ndarray, y: Tensor, predictions: Tensor, weight: Tensor | None = None
    ) -> pd.DataFrame:
        """Return predictions for the user, one row for each row of data: ``row``, the columns of
        :meth:`written`, and those of :meth:`fedlit.outcomes.base.Outcome.columns`: probabilities,
        and what is predicted.
        """
        import pandas as pd

        columns: Columns = {"row": row}
        if weight is not None:
            columns[WEIGHT] = weight.cpu().numpy().astype("float64")
        columns |= self.written(y)
        columns |= self.outcome.columns(predictions.numpy())
        return pd.DataFrame(columns)

    @abstractmethod
    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return (task, predictions, y) of rows that :meth:`frame` wrote, whose labels may have
        become text. The returned task is of the unit of the returned predictions.
        """


def one_of(logits: Tensor) -> Tensor:
    """Return the probabilities of several exclusive classes (…, classes); if there is a single
    logit, that of the positive class.
    """
    if logits.shape[-1] == 1:
        return logits.sigmoid()
    return logits.softmax(-1)

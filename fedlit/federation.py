"""A federation of DataFrames with an interface like scikit-learn's: fit, report, predict."""

from __future__ import annotations

import warnings
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from fedlit import yaml_text
from fedlit.data.findings import BEFORE, Findings
from fedlit.data.reading.frames import frame_of
from fedlit.data.table import check_client
from fedlit.errors import ConfigError, Told, expect
from fedlit.yaml_edit import edited

if TYPE_CHECKING:
    from fedlit.data.examine.propose import Proposal
    from fedlit.mixture.recommend import Recommendation
    from fedlit.score.estimator import Trained
    from fedlit.score.scorer import Scorer
    from fedlit.train.results import Results

_Default = TypeVar("_Default")


class Federation(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Finds out who should join a federation and with which method, and predicts for each client.

    It does the same as the commands ``fedlit init``, ``recommend``, ``fit`` and ``predict``. Your
    DataFrames are not changed. Copies are written below ``folder``, because training may use
    several processes.

    Args:
        label: the column to predict, or a mapping of each client to its column; None if ``task``
            names the columns.
        task: a task that names its columns, such as ``{"name": "survival", "time": "days", "event":
            "died"}``, or a mapping of each client to its task.
        minutes: the approximate time for everything; more minutes give better answers.
        method: the one method to train (``fedlit methods`` lists them), instead of a search for the
            best.
        settings: configuration keys to change, such as ``{"score.threshold": "youden"}`` or
            ``{"data.source.weight": "weight"}``. Keys of the training, such as
            ``trainer.max_epochs``, change ``method``; without it, they change the one candidate
            that has the method of the generated configuration.
        matters: the number of percentage points below which a difference does not matter.
        folder: the folder for all files; each fit writes a new version.
        seed: the seed of all random numbers.
        known: maps a column to the reason why nothing has to be done about what is found in it,
            such as a column that reveals the label and is known when the prediction is made.

    Attributes:
        clients_: the names of the clients.
        folder_: the folder of this fit.
        config_: the generated configuration.
        run_: the folder of the run that makes the predictions.
        notes_: the findings about the tables (:class:`fedlit.data.findings.Findings`), as ``fedlit
            check`` shows them.

    A fitted federation is a mapping of its clients' names to :class:`Member`.

    Example::

        fed = fedlit.Federation(label="outcome").fit({"north": north, "south": south})
        fed.report()                     # who should join, and with which method
        fed["north"].predict(tomorrow)   # a DataFrame; also predict_proba, score, export
        fed.predict({"north": tomorrow})
    """

    # otherwise scikit-learn adds methods by which a pipeline would ask for these arguments
    __metadata_request__fit: ClassVar = {"tables": UNUSED}
    __metadata_request__predict: ClassVar = {"tables": UNUSED}

    def __init__(
        self,
        label: str | Mapping[str, str] | None = None,
        *,
        task: Mapping[str, Any] | None = None,
        minutes: float = 10.0,
        method: str | None = None,
        settings: Mapping[str, object] | None = None,
        matters: float = 0.5,
        folder: str | Path = "lightning_logs/federation",
        seed: int = 1,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self.known = known
        self.label = label
        self.task = task
        self.minutes = minutes
        self.method = method
        self.settings = settings
        self.matters = matters
        self.folder = folder
        self.seed = seed

    def fit(self, tables: Mapping[str, pd.DataFrame]) -> Federation:
        """Learn from clients' rows.

        Args:
            tables: maps each client to its rows, including the label.

        Raises:
            ConfigError: the tables are no mapping of frames, the label is no column, or the method
                does not exist.
            DataError: nothing can be learnt from the rows.
        """
        from fedlit.data.examine.propose import written
        from fedlit.run.folders import new_folder

        tables = _frames(tables, "fit")
        seeded = "seed" in (self.settings or {})
        expect(
            not seeded,
            "Federation: settings",
            "keys other than seed",
            "seed",
            "give Federation(seed=…)",
        )
        if self.task is None:
            self._check_labels(tables)
        else:
            both = "no label, because the task names its columns"
            expect(self.label is None, "Federation: label", both, self.label)
        folder = new_folder(Path(self.folder).absolute(), "")
        rows = folder / "tables"
        rows.mkdir(parents=True)
        for client, frame in tables.items():
            _write(client, frame, rows / f"{client}.parquet")
        config = folder / "federation.yaml"
        text = written(self._proposal(rows, tables), str(config))
        config.write_text(_changed(text, self._changes()), encoding="utf-8")
        result: Recommendation | Results
        if self.method is None:
            result, run = self._recommended(config, folder)
        else:
            result, run = self._trained(config, folder)
        self.clients_ = tuple(tables)
        self.folder_ = folder
        self.config_ = config
        self.run_ = run
        self._shown = replace(result, notes=self.notes_)
        return self

    def _check_labels(self, tables: Mapping[str, pd.DataFrame]) -> None:
        columns = isinstance(self.label, str | Mapping)
        expect(columns, "Federation: label", "a column, or client → its column", self.label)
        for client, frame in tables.items():
            label = self._label_of(client)
            there = isinstance(label, str) and label in frame
            expected = f"a column of client {client!r}"
            expect(there, "Federation: label", expected, label, known=map(str, frame))

    def _proposal(self, folder: Path, clients: Iterable[str]) -> Proposal:
        """Return the configuration for the tables in a folder."""
        from fedlit.data.examine.propose import places_by_client, propose
        from fedlit.data.examine.propose_roles import Roles, propose_roles
        from fedlit.data.targets import check_task, task_for

        if self.task is not None:
            task = dict(self.task)
            check_task(task, clients)
            roles = Roles.of_tasks({client: task_for(task, client) for client in clients})
            return propose_roles(places_by_client([str(folder)], None), roles)
        labels: dict[str | None, str] = {}
        if isinstance(self.label, str):
            labels[None] = self.label
        elif self.label is not None:
            labels.update(self.label)
        return propose([str(folder)], labels)

    def _label_of(self, client: str) -> str | None:
        """Return the column that a client predicts; None if nobody has said which."""
        if isinstance(self.label, str):
            return self.label
        return None if self.label is None else self.label.get(client)

    def _changes(self) -> dict[str, object]:
        """Return what the generated configuration is changed to. A method comes before its
        settings.
        """
        changes: dict[str, object] = {}
        if self.known:
            changes["data.known"] = dict(self.known)
        if self.method is None:
            changes.update(self.settings or {})
        return changes

    def _note(self, findings: Findings) -> None:
        """Keep the findings about the tables. What blocks a verdict is a warning."""
        self.notes_ = findings
        for finding in findings.blocks:
            warnings.warn(f"{BEFORE}{finding}", UserWarning, stacklevel=4)

    def _recommended(self, config: Path, folder: Path) -> tuple[Recommendation, Path]:
        from fedlit.mixture.recommend import recommend

        recommendation = recommend(
            config,
            budget=60 * self.minutes,
            seed=self.seed,
            matters=self.matters,
            out=folder / "recommended",
        )
        assert recommendation.mixture.folder is not None
        self._note(recommendation.survey.findings)
        return recommendation, recommendation.mixture.folder

    def _trained(self, config: Path, folder: Path) -> tuple[Results, Path]:
        from fedlit.data.examine import examine
        from fedlit.run.load import load

        keys = {
            "seed": self.seed,
            "trainer.default_root_dir": str(folder / "runs"),
            **(self.settings or {}),
        }
        run = load(config, overrides={"method": self.method, **keys})
        self._note(examine(run.data.tables(keep=True), run.data.source, run.data.known).findings)
        run.fit(quiet=True)
        assert run.folder is not None
        return run.test(_checkpoint(run.folder), quiet=True), run.folder

    def report(self) -> Recommendation | Results:
        """Return who should join and with which method; with ``method``, its scores on test rows.
        The findings about the tables are below. A notebook shows cards or a table, a terminal text;
        ``report().plot()`` draws it.

        Raises:
            NotFittedError: the federation has not been fitted.
        """
        check_is_fitted(self)
        return self._shown

    def predict(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """Return predictions of several clients' rows, see :meth:`Member.predict`.

        Args:
            tables: maps clients of the federation to rows.

        Raises:
            NotFittedError: the federation has not been fitted.
            ConfigError: the tables are no mapping of frames, or there is no such client.
            DataError: a column is missing, or has another type.
        """
        check_is_fitted(self)
        tables = _frames(tables, "predict")
        return {client: self[client].predict(rows) for client, rows in tables.items()}

    def keys(self) -> KeysView[str]:
        """Return the names of the clients."""
        return KeysView(cast("Mapping[str, Member]", self))

    def values(self) -> ValuesView[Member]:
        """Return the clients, each of which can predict."""
        return ValuesView(cast("Mapping[str, Member]", self))

    def items(self) -> ItemsView[str, Member]:
        """Return the names of the clients, each with the client itself."""
        return ItemsView(cast("Mapping[str, Member]", self))

    def get(self, client: str, default: _Default | None = None) -> Member | _Default | None:
        """Return one client, or the default if there is no such client."""
        check_is_fitted(self)
        if client not in self.clients_:
            return default
        return self[client]

    def __iter__(self) -> Iterator[str]:
        check_is_fitted(self)
        return iter(self.clients_)

    def __len__(self) -> int:
        check_is_fitted(self)
        return len(self.clients_)

    def __contains__(self, client: object) -> bool:
        check_is_fitted(self)
        return client in self.clients_

    def __getitem__(self, client: str) -> Member:
        """Return one client, which can predict.

        Raises:
            NotFittedError: the federation has not been fitted.
            ConfigError: there is no such client.
        """
        check_is_fitted(self)
        check_client("client", client, self.clients_)
        from fedlit.mixture.opened import load_run

        scorer = load_run(self.run_, client, _checkpoint(self.run_), quiet=True)
        label = self._label_of(client) or scorer.encoder.target_name
        return Member(client, label, scorer)

    def _repr_html_(self) -> str:
        if not hasattr(self, "clients_"):
            return f"<pre>{self!r}</pre>"
        return self.report()._repr_html_()


# not a base: it would compare federations by their clients, so that they had no hash
Mapping.register(Federation)


@dataclass(frozen=True)
class Member:
    """One client of a fitted :class:`Federation`.

    Attributes:
        name: the name of the client.
        label: the column that it predicts.
        scorer: the scorer that ``Run.client`` and ``fedlit.score.load`` return.
    """

    name: str
    label: str
    scorer: Scorer

    @property
    def estimator(self) -> Trained:
        """The client as an estimator of scikit-learn, for its displays and inspection tools:
        ``RocCurveDisplay.from_estimator(fed["north"].estimator, rows, rows["outcome"])``.

        Raises:
            ConfigError: the client predicts several labels for each row, which they do not show.
        """
        from fedlit.score.estimator import estimator_of

        return estimator_of(self.scorer)

    def predict(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return predictions of rows: a frame with their index, a column for the probability of
        each class, and ``predicted``.

        Raises:
            DataError: a column is missing, or has another type.
        """
        return self.scorer.predict(rows)

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Return the probabilities of the classes (n, classes), in the order of
        ``scorer.classes_``.
        """
        return self.scorer.predict_proba(rows)

    def predict_survival(self, rows: pd.DataFrame, times: Sequence[float]) -> pd.DataFrame:
        """Return the probability of no event up to each time: a frame with the index of the rows and
        a column for each time.

        Raises:
            ConfigError: the client predicts no times to an event.
            DataError: a column is missing, or has another type.
        """
        return self.scorer.predict_survival(rows, times)

    def score(self, rows: pd.DataFrame) -> dict[str, float]:
        """Return the scores on rows with a known label: AUROC, AUPRC and balanced accuracy, or
        RMSE, MAE and R².

        Raises:
            ConfigError: the label's column is missing.
            DataError: a row has no label.
        """
        from fedlit.data.labels import read_target
        from fedlit.data.settings import ClientSettings
        from fedlit.tasks import task_from

        if self.scorer.outcome.several_columns:
            raise ConfigError(
                f"client {self.name!r}: score expects one column to score by, found {self.label}; "
                "report() has the scores"
            )
        rows = frame_of(rows)
        if self.label not in rows:
            raise ConfigError(
                f"client {self.name!r}: expected the column {self.label!r} to score by, found none"
            )
        name = self.scorer.state["name"]
        labels = frozenset(str(label).casefold() for label in self.scorer.outcome.classes)
        settings = ClientSettings(
            self.name, self.label, task=name, asks_for_task=False, label_words=labels
        )
        target = read_target(settings, rows).target
        scored = self.scorer.predict(rows.drop(columns=self.label), keys=[])
        if self.scorer.outcome.classes:
            target = target.map(str)  # the columns of probabilities have names
        task, predictions, y = task_from(self.scorer.own_state).read(scored.assign(target=target))
        context_of = {score.name: score.context for score in task.scores}
        return {
            name: float(value)
            for name, value in task.evaluate(predictions, y).items()
            if not context_of.get(name)
        }

    def export(self, folder: str | Path) -> Path:
        """Write the client as a folder of data (ONNX, arrays and JSON), which can score rows
        without PyTorch. Return the folder.
        """
        from fedlit.mixture.export import export_scorer

        return export_scorer(self.scorer, Path(folder)).folder


def _frames(tables: object, method: str) -> dict[str, pd.DataFrame]:
    """Return clients' rows as frames of pandas, of whatever library they are."""
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError(
            f"Federation.{method}: expected {{client: DataFrame, …}}, found {type(tables).__name__}"
        )
    from fedlit.data.sources.base import check_client_name, check_names

    frames = dict[str, pd.DataFrame]()
    for client, rows in tables.items():
        check_client_name(client)
        frame = frame_of(rows)
        valid = isinstance(frame, pd.DataFrame)
        lazy = ""
        if hasattr(rows, "collect"):
            lazy = "give what its collect() returns"
        kind = Told(type(rows).__name__)
        expect(valid, f"Federation.{method}: client {client!r}", "a DataFrame", kind, lazy)
        frames[client] = frame
    check_names(list(frames))
    return frames


def _changed(text: str, changes: Mapping[str, object]) -> str:
    """Return the text of a configuration with changed keys. Comments stay, unless a class is
    replaced.
    """
    from fedlit.run.layers import Layer, laid

    content = laid([Layer(yaml_text.load(text)), Layer(changes)])
    edited_text = edited(text, content)
    if yaml_text.load(edited_text) == content:
        return edited_text
    return yaml_text.dump(content)


def _write(client: str, frame: pd.DataFrame, path: Path) -> None:
    from fedlit.data.schema.cells import plain_text

    # cells of several types, as pandas.read_excel returns them, become the text that a CSV file
    # would hold
    plain = frame.copy(deep=False)
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        if infer_dtype(column, skipna=True) == "mixed-integer":
            plain.isetitem(position, column.map(plain_text, na_action="ignore").array)
    try:
        plain.rename(columns=str).to_parquet(path, index=False)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(
            f"Federation.fit: client {client!r}: expected columns of one type each and of "
            f"different names, found: {' '.join(str(error).split())[:200]}"
        ) from error


def _checkpoint(run: Path) -> str:
    """Return ``best``, the best state by validation rows, if the run kept one; otherwise
    ``last``.
    """
    from fedlit.train.whole import CHECKPOINTS

    return "best" if any((run / CHECKPOINTS).glob("best*.ckpt")) else "last"

"""Federation: DataFrames in, predictions out; what the commands say, it says."""

import html
import inspect
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibrationDisplay, calibration_curve
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.metrics import RocCurveDisplay, accuracy_score, roc_auc_score

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError, DataError
from fedlit.federation import _write
from fedlit.mixture.recommend import Recommendation
from fedlit.train.results import Results


def rows(seed: int, count: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": draw.normal(50, 9, count), "dose": draw.normal(size=count)})
    frame["ward"] = pd.Categorical(draw.choice(["a", "b"], count))
    frame["outcome"] = np.where(frame["age"] + 9 * draw.normal(size=count) > 50, "ill", "well")
    return frame


NORTH = rows(1, 150)
SOUTH = rows(2, 120).drop(columns="dose")
NEW = rows(3, 60)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> fedlit.Federation:
    made = fedlit.Federation(
        "outcome",
        method="fedavg",
        settings={"trainer.max_epochs": 4},
        folder=tmp_path_factory.mktemp("fed"),
    )
    before = NORTH.copy()
    fitted = made.fit({"north": NORTH, "south": SOUTH})
    assert fitted is made
    pd.testing.assert_frame_equal(NORTH, before)
    return fitted


def test_it_predicts_what_the_command_predicts(fed: fedlit.Federation, tmp_path: Path) -> None:
    NEW.drop(columns="outcome").to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "scores.csv"
    asked = ["--client", "north", "--data", str(tmp_path / "new.csv"), "--out", str(out)]
    assert main(["predict", "--run", str(fed.run_), "--ckpt_path", "best", *asked]) == 0
    told = fed["north"].predict(NEW.drop(columns="outcome"))
    np.testing.assert_allclose(
        told["probability_ill"], pd.read_csv(out)["probability_ill"], atol=1e-6
    )
    proba = fed["north"].predict_proba(NEW)
    assert fed["north"].scorer.classes_.tolist() == ["well", "ill"]
    np.testing.assert_array_equal(proba, told[["probability_well", "probability_ill"]])


def test_scores_are_scikit_learns_and_exports_predict_alike(
    fed: fedlit.Federation, tmp_path: Path
) -> None:
    from fedlit.score.folder import load

    member = fed["south"]
    expected = roc_auc_score(NEW["outcome"] == "well", member.predict(NEW)["probability_well"])
    scores = member.score(NEW)
    assert scores["auroc"] == pytest.approx(expected, abs=1e-6) and "classes" not in scores
    report = fed.report()
    assert isinstance(report, Results)
    dots = np.asarray(report.plot().collections[-1].get_offsets())[:, 0]
    assert np.asarray(dots).tolist() == report.to_frame()["auroc"].tolist()
    read = load(fed["north"].export(tmp_path / "north"))
    np.testing.assert_allclose(read.predict_proba(NEW), fed["north"].predict_proba(NEW), atol=1e-6)


@pytest.mark.parametrize("frozen", [False, True], ids=["itself", "frozen"])
def test_scikit_learns_displays_take_a_client(fed: fedlit.Federation, frozen: bool) -> None:
    """The positive class, ``ill``, is the first in the alphabet, so that an order left as it is
    would show."""
    own = fed["north"].estimator
    estimator = FrozenEstimator(own) if frozen else own
    features = NEW[own.feature_names_in_]
    y = NEW["outcome"]
    ill = fed["north"].predict(NEW)["probability_ill"]
    assert own.classes_.tolist() == ["ill", "well"] and is_classifier(estimator)
    curve = RocCurveDisplay.from_estimator(estimator, features, y, pos_label="ill")
    assert curve.roc_auc == pytest.approx(roc_auc_score(y == "ill", ill))
    reliability = CalibrationDisplay.from_estimator(
        estimator, features, y, n_bins=5, pos_label="ill"
    )
    np.testing.assert_allclose(
        reliability.prob_true, calibration_curve(y == "ill", ill, n_bins=5)[0]
    )
    dependence = PartialDependenceDisplay.from_estimator(
        estimator, features, ["age"], grid_resolution=5
    )
    steps = np.diff(dependence.pd_results[0]["average"][0])
    assert (steps < 0).all()  # of well: the older, the less
    found = permutation_importance(
        estimator, features, y, scoring="roc_auc", n_repeats=3, random_state=0
    )
    assert found.importances_mean.argmax() == own.feature_names_in_.tolist().index("age")
    assert found.importances_mean.max() > 0.1
    plt.close("all")


def test_an_estimator_answers_as_its_client_does(fed: fedlit.Federation) -> None:
    member = fed["north"]
    rows = NEW.drop(columns="outcome")
    estimator = member.estimator
    predicted = member.predict(NEW)
    np.testing.assert_array_equal(estimator.predict(rows), predicted["predicted"])
    np.testing.assert_array_equal(
        estimator.predict_proba(rows), predicted[["probability_ill", "probability_well"]]
    )
    score = estimator.score(rows, NEW["outcome"])
    assert type(score) is float and score == accuracy_score(NEW["outcome"], predicted["predicted"])
    array = rows[estimator.feature_names_in_].to_numpy()
    np.testing.assert_array_equal(estimator.predict(array), predicted["predicted"])
    with pytest.raises(ConfigError, match="FrozenEstimator"):
        estimator.fit(rows, NEW["outcome"])


def test_it_has_scikit_learns_manners(fed: fedlit.Federation) -> None:
    again = pickle.loads(pickle.dumps(fed))
    np.testing.assert_array_equal(
        again["north"].predict_proba(NEW), fed["north"].predict_proba(NEW)
    )
    fresh = clone(fed)
    assert fresh.get_params() == fed.get_params() and not hasattr(fresh, "clients_")
    with pytest.raises(NotFittedError):
        fresh.report()
    with pytest.raises(NotFittedError):
        fresh["north"]
    assert "<table" in fed._repr_html_()
    assert fed.clients_ == ("north", "south") and fed.set_params(minutes=3).minutes == 3


def test_a_fitted_federation_is_a_mapping_of_its_clients(fed: fedlit.Federation) -> None:
    assert (
        isinstance(fed, Mapping)
        and list(fed) == list(fed.keys()) == ["north", "south"]
        and len(fed) == 2
    )
    assert "north" in fed and "west" not in fed and 0 not in fed and fed.get("west") is None
    tables = {"south": NEW, "north": NEW}
    predicted = fed.predict(tables)
    assert list(predicted) == ["south", "north"]
    for client, member in fed.items():
        pd.testing.assert_frame_equal(predicted[client], member.predict(NEW))
    assert [member.name for member in fed.values()] == [*fed]
    with pytest.raises(NotFittedError):
        list(clone(fed))
    with pytest.raises(ConfigError, match=r"Federation\.predict"):
        fed.predict(NEW)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'west'"):
        fed.predict({"west": NEW})
    public = [
        name
        for name, value in inspect.getmembers(fedlit.Federation, callable)
        if not name.startswith("_")
    ]
    assert len(public) == 10, public


@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedpr"},
        {"settings": {"trainer.max_epoch": 2}},
        {"settings": {"data.pool": "perhaps"}},
    ],
)
def test_python_hears_of_no_flags(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        fedlit.Federation("outcome", folder=tmp_path, **{"method": "fedavg", **options}).fit(
            {"north": NORTH}
        )
    assert "--" not in str(refused.value).replace("(fedlit fit --help all lists all keys)", "")


@pytest.mark.parametrize(
    ("tables", "options"),
    [
        ([NORTH], {}),
        ({}, {}),
        ({"north": [1, 2]}, {}),
        ({"a/b": NORTH}, {}),
        ({"north": NORTH}, {"label": "nowhere"}),
        ({"north": NORTH}, {"label": {"south": "outcome"}}),
        ({"north": NORTH}, {"method": None, "settings": {"seed": 2}}),
        ({"north": NORTH}, {"method": "fedavgg"}),
    ],
)
def test_what_is_refused(tables: Any, options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        fedlit.Federation(
            **{"label": "outcome", "method": "fedavg", "folder": tmp_path, **options}
        ).fit(tables)


def test_a_missing_column_and_a_missing_client_are_named(fed: fedlit.Federation) -> None:
    with pytest.raises(DataError, match="'age'"):
        fed["north"].predict(NEW.drop(columns="age"))
    with pytest.raises(ConfigError, match="'nort'"):
        fed["nort"]


def test_it_recommends(tmp_path: Path) -> None:
    """With no time for a network."""
    settings = {
        "score.threshold": {"sensitivity": 0.8},
        "score.subgroups": {"age": [50]},
        "data.leave_out": [],
    }
    fed = fedlit.Federation(
        {"north": "outcome", "south": "state"}, minutes=0.01, folder=tmp_path, settings=settings
    )
    north = NORTH.assign(outcome=NORTH["outcome"] == "ill")
    south = SOUTH.assign(state=SOUTH["outcome"] == "ill").drop(columns="outcome")
    again = pickle.loads(pickle.dumps(fed.fit({"north": north, "south": south})))
    for label, member, new in (("outcome", fed["north"], north), ("state", again["south"], south)):
        expected = roc_auc_score(new[label], member.predict_proba(new)[:, 1])
        assert member.score(new)["auroc"] == pytest.approx(expected, abs=1e-6)
    report = fed.report()
    assert isinstance(report, Recommendation)
    cards, _, rest = report._repr_html_().partition("<details>")
    for client, answer in report.clients.items():
        assert f"<b>{client}</b>" in cards and html.escape(answer.sentence) in cards
    assert "<table" in rest and "<table" not in cards
    assert rest.count("<details>") == 2
    assert [own.name for own in report.supplements] == ["thresholds", "subgroups"]
    assert "predicted_at_threshold" in fed["north"].predict(north)
    axes = again.report().plot()
    assert [own.get_text() for own in axes.get_yticklabels()] == ["north", "south"]


class Stream:
    """What Polars, DuckDB and Arrow have in common: columns are handed over as a stream of
    Arrow's."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_of_other_libraries_are_those_of_pandas(
    fed: fedlit.Federation, tmp_path: Path
) -> None:
    expected = fed["north"].predict(NEW)
    for rows in (Stream(NEW), pa.Table.from_pandas(NEW, preserve_index=False)):
        pd.testing.assert_frame_equal(fed["north"].predict(rows), expected)  # type: ignore[arg-type]
        assert fed["north"].score(rows) == fed["north"].score(NEW)  # type: ignore[arg-type]
    settings = {"trainer.max_epochs": 4}
    again = fedlit.Federation("outcome", method="fedavg", settings=settings, folder=tmp_path)
    again.fit({"north": Stream(NORTH), "south": Stream(SOUTH)})  # type: ignore[dict-item]
    pd.testing.assert_frame_equal(again["north"].predict(NEW), expected)


def test_cells_of_several_types_are_read_as_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, "x", 2.0, None], "y": [1, 2, 3, 4]}, dtype=object)
    _write("north", frame, tmp_path / "north.parquet")
    assert pd.read_parquet(tmp_path / "north.parquet")["x"].fillna("none").tolist() == [
        "1",
        "x",
        "2",
        "none",
    ]

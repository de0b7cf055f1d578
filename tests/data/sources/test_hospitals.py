"""The made-up hospitals: what their files hold is what the source gives, and what is so is
known."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedlit.data.sources import Hospitals, Tables
from fedlit.data.sources.hospitals import PART, TARGET
from fedlit.data.table import SPLITS
from fedlit.errors import ConfigError

MANY = Hospitals(draw=1, later=100_000)


def test_files_read_back_to_the_same_tables(tmp_path: Path) -> None:
    hospitals = Hospitals(draw=5)
    files = {}
    for client in hospitals.clients:
        files[client] = str(tmp_path / f"{client}.csv")
        hospitals.frame(client).to_csv(files[client], index=False)
    read = Tables(files=files, target=TARGET, split={"column": PART}, positive="yes").tables(seed=3)
    for ours, theirs in zip(hospitals.tables(seed=8), read, strict=True):
        pd.testing.assert_frame_equal(ours.features, theirs.features, check_dtype=False)
        assert ours.target.tolist() == theirs.target.tolist()
        assert (ours.name, ours.categorical, ours.positive) == (
            theirs.name,
            theirs.categorical,
            theirs.positive,
        )
        assert all(np.array_equal(ours.splits[split], theirs.splits[split]) for split in SPLITS)


def test_all_seeds_of_a_run_have_the_same_rows() -> None:
    first, again = (Hospitals(clients=["west"]).tables(seed) for seed in (0, 1))
    pd.testing.assert_frame_equal(first[0].features, again[0].features)
    assert all(np.array_equal(first[0].splits[split], again[0].splits[split]) for split in SPLITS)
    other = Hospitals(clients=["west"], draw=12).tables(0)
    assert not first[0].features.equals(other[0].features)


def test_more_later_rows_change_no_other_row() -> None:
    for client in MANY.clients:
        few = Hospitals(draw=1).frame(client)
        many = MANY.frame(client)
        pd.testing.assert_frame_equal(few, many.iloc[: len(few)])


@pytest.mark.parametrize("client", Hospitals.known)
def test_labels_follow_the_stated_risk(client: str) -> None:
    """In each tenth of the risk as many are readmitted as it says, within four standard errors."""
    frame = MANY.frame(client)
    risk = MANY.risk(client, frame)
    readmitted = (frame[TARGET] == "yes").to_numpy(float)
    for rows in np.array_split(np.argsort(risk), 10):
        error = np.sqrt((risk[rows] * (1 - risk[rows])).sum()) / len(rows)
        assert abs(readmitted[rows].mean() - risk[rows].mean()) < 4 * error


def test_south_alone_has_another_mechanism() -> None:
    """A logistic model of one hospital's later rows reaches the best possible AUROC at those that
    share its mechanism. The best possible one is that of the true risk.
    """
    shared = [
        name
        for name in MANY.frame("north")
        if name in MANY.frame("south") and name in MANY.frame("west")
    ]
    shared = [name for name in shared if name not in (TARGET, PART)]
    lost = {}
    for learns, meets in product(MANY.clients, MANY.clients):
        here = MANY.frame(learns)
        there = MANY.frame(meets)
        model = make_pipeline(StandardScaler(), LogisticRegression())
        model.fit(pd.get_dummies(here[shared]).to_numpy(float), here[TARGET])
        # each hospital's numbers in its own unit, as an encoder has them
        model[0].fit(pd.get_dummies(there[shared]).to_numpy(float))
        scores = model.predict_proba(pd.get_dummies(there[shared]).to_numpy(float))[:, 1]
        readmitted = there[TARGET] == "yes"
        lost[learns, meets] = roc_auc_score(readmitted, MANY.risk(meets, there)) - roc_auc_score(
            readmitted, scores
        )
    alike = [lost[one, two] for one, two in product(("north", "west"), repeat=2)]
    apart = [lost[pair] for pair in lost if (pair[0] == "south") != (pair[1] == "south")]
    assert max(alike) < 0.03
    assert min(apart) > 0.1


def test_hospitals_refuses_what_cannot_be_drawn() -> None:
    for key in ("draw", "later"):
        with pytest.raises(ConfigError, match=key):
            Hospitals(**{key: -1})

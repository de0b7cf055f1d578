"""Every method that ships trains on the quickstart as it is, with no other flag than its name."""

from pathlib import Path

import pytest

import fedlit
from fedlit.run.config import METHODS, known_configs

NAMES = sorted(Path(name).stem for name in known_configs(METHODS))
# an average, a personal head, normalisation that stays private, a robust rule, a forest and a
# closed form
OFTEN = ("fedavg", "fedper", "fedbn", "krum", "forest", "pooled_logistic")
FLAGS = ("--trainer.max_epochs=2", "--trainer.enable_progress_bar=false", "--board.pictures=0")


def test_all_methods_are_among_those_trained() -> None:
    assert {*OFTEN} <= {*NAMES} and len(NAMES) >= 47


@pytest.mark.parametrize(
    "method",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.full) for name in NAMES],
)
def test_a_method_trains_and_scores_on_the_quickstart(method: str, tmp_path: Path) -> None:
    run = fedlit.load(
        "quickstart", f"--method={method}", f"--trainer.default_root_dir={tmp_path}", *FLAGS
    )
    run.fit(quiet=True)
    scores = run.test(quiet=True).scores
    assert set(scores) == {"north", "south", "west"}
    assert all(0 <= own["auroc"] <= 1 for own in scores.values())

"""A run of several parts: trained on folds, mixed, tested, predicted with, resumed, exported."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from elsewhere import ROWS, scored_elsewhere
from federations import TINY

from fedlit.__main__ import main
from fedlit.composite.export import export, export_scorer
from fedlit.composite.mixture import Mixture
from fedlit.composite.parts import ORDER, Part
from fedlit.composite.settings import is_composite, settings_from, settings_of
from fedlit.composite.weigh import held_out_of
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError, DataError, FedlitError
from fedlit.run.config import config_folders, read_yaml
from fedlit.run.load import load
from fedlit.score import load as load_folder
from fedlit.score import load_run

NETWORK = TINY.format(epochs=3)
TREES = {"go_alone": "extra_trees", "grid": {"n_estimators": [5, 10]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "tiny.yaml").write_text(NETWORK)
    return folder


def settings(place: Path, **changes: Any) -> dict[str, Any]:
    parts = {
        "trees": dict(TREES),
        "network": {"config": str(place / "tiny.yaml"), "set": {"exchange.federated": []}},
        "federated": {"config": str(place / "tiny.yaml"), "set": {"trainer.max_epochs": 4}},
    }
    own = {"mixture": {"parts": parts, "admit": False, **changes.pop("mixture", {})}, "seed": 8, "folds": 2}
    return {**own, "name": "tiny_best", "trainer": {"default_root_dir": str(place)}, **changes}


@pytest.fixture(scope="module")
def trained(place: Path) -> Mixture:
    mixture = Mixture(settings(place))
    mixture.fit(quiet=True)
    return mixture


def test_each_row_is_predicted_once_by_a_model_that_has_not_seen_it(trained: Mixture) -> None:
    assert trained.folder is not None
    whole = load(str(trained.settings.parts["network"].config), "--seed=8")
    whole.data.setup()
    known = {own.spec.name: own for own in whole.data.clients}
    frame = pd.read_parquet(trained.folder / "out_of_fold.parquet")
    for (name, client), own in frame.groupby(["part", "client"]):
        before = known[str(client)]
        rows = np.concatenate([before.train.row, before.sites[str(client)]["validation"].row])
        assert sorted(own["row"]) == sorted(rows)
        part = Part.of(trained.settings, trained.folder)[str(name)]
        for fold, held in own.groupby("fold"):
            data = part.load(int(fold)).data
            data.setup()
            learnt = next(c.train.row for c in data.clients if c.spec.name == client)
            assert not set(held["row"]) & set(learnt)


def test_the_test_is_the_average_by_hand(trained: Mixture) -> None:
    assert trained.folder is not None
    results = trained.test(quiet=True)
    for table in Bundled(clients=["wine", "breast_cancer"]).tables(8):
        rows = table.features.iloc[table.splits["test"]]
        total = 0.0
        for name, part in Part.of(trained.settings, trained.folder).items():
            mine = 0.0
            for fold in (0, 1):
                if name == "trees":
                    scorer = load_folder(part.fold(fold) / table.name)
                else:  # an ordinary run of fedlit
                    scorer = load_run(part.fold(fold) / "version_0", table.name, quiet=True)
                mine = mine + scorer.predict_proba(rows).astype(np.float64) / 2
            total = total + mine / 3
        predicted = np.array(scorer.classes_)[np.asarray(total).argmax(1)]
        accuracy = float((predicted == table.target.iloc[table.splits["test"]].to_numpy()).mean())
        assert results.scores[table.name]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
        own = trained.client(table.name).predict_proba(rows)
        np.testing.assert_allclose(own, total, atol=1e-7)
        # in the same order of sums: the same bits as in the file of predictions
        frame = trained.predict(quiet=True)[table.name]
        np.testing.assert_array_equal(frame.filter(like="probability_").to_numpy(np.float32), own)
    written = json.loads((trained.folder / "test.json").read_text())["clients"]["wine"]["parts"]
    assert [own["weight"] for own in written.values()] == pytest.approx([1 / 3] * 3)


def bits(folder: Path) -> dict[str, str]:
    files = [folder / "mixture.json", folder / "out_of_fold.parquet", *folder.glob("parts/trees/*/*/*.safetensors")]
    found = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    for path in folder.glob("parts/*/*/version_0/checkpoints/last.ckpt"):
        state = torch.load(path, weights_only=True)["state_dict"]
        digest = hashlib.sha256(b"".join(own.numpy().tobytes() for own in state.values()))
        found[str(path.relative_to(folder))] = digest.hexdigest()
    return found


@pytest.mark.full
def test_killed_in_the_second_part_and_resumed_it_ends_with_the_same_bits(
    trained: Mixture, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedlit.train.loop import FederatedLoop

    own = settings(place, trainer={"default_root_dir": str(tmp_path)})
    ends, count = FederatedLoop.on_train_epoch_end, iter(range(100))

    def killed(loop: FederatedLoop) -> None:
        ends(loop)
        if next(count) == 4:  # two epochs into fold 1 of the second part
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedLoop, "on_train_epoch_end", killed)
        with pytest.raises(KeyboardInterrupt):
            Mixture(own).fit(quiet=True)
    begun = tmp_path / "tiny_best" / "version_0"
    before = (begun / "parts/network/fold_0/DONE").stat().st_mtime_ns
    assert (begun / "parts/network/fold_1/version_0/checkpoints/last.ckpt").is_file()
    assert not (begun / "parts/network/fold_1/DONE").exists() and not (begun / "mixture.json").exists()
    with pytest.raises(ConfigError, match=r"found none: it was not trained to its end.*--ckpt_path last"):
        Mixture(own).test(quiet=True)
    resumed = Mixture(own)
    resumed.fit("last", quiet=True)
    assert resumed.folder == begun and trained.folder is not None
    assert (begun / "parts/network/fold_0/DONE").stat().st_mtime_ns == before
    assert bits(begun) == bits(trained.folder)


@pytest.mark.full
def test_two_processes_leave_what_one_leaves(trained: Mixture, place: Path, tmp_path: Path) -> None:
    assert trained.folder is not None
    own = settings(place, trainer={"default_root_dir": str(tmp_path)}, workers=2)
    del own["mixture"]["parts"]["network"]
    twice = Mixture(own)
    twice.fit(quiet=True)
    assert twice.folder is not None
    before, now = bits(trained.folder), bits(twice.folder)
    kept = [name for name in now if name.startswith("parts/")]
    assert len(kept) == 6 and all(now[name] == before[name] for name in kept)


def test_other_weights_need_no_training(trained: Mixture, place: Path) -> None:
    assert trained.folder is not None
    path = trained.folder / "mixture.json"
    kept = path.read_text()
    other = Mixture(settings(place, mixture={"weights": {"trees": 3, "network": 1, "federated": 0}}))
    other.fit("last", quiet=True)
    recipe = json.loads(path.read_text())["clients"]["wine"]["recipe"]
    assert recipe["weights"] == {"trees": 0.75, "network": 0.25}
    path.write_text(kept)
    with pytest.raises(ConfigError, match=r"changes to how parts are mixed only, found changed parts\.trees"):
        changed = settings(place)
        changed["mixture"]["parts"]["trees"] = {"go_alone": "logistic_regression"}
        Mixture(changed).fit("last", quiet=True)


def test_the_whole_mixture_is_exported_and_read_again(trained: Mixture, tmp_path: Path) -> None:
    assert trained.folder is not None
    made = export(trained.folder, "wine", tmp_path / "wine")
    assert "Checked: on 45 test rows" in made.checked
    (table,) = Bundled(clients=["wine"]).tables(8)
    rows = table.features.tail(30)
    expected = trained.client("wine").predict(rows)
    for count, found in zip(ROWS, scored_elsewhere({tmp_path / "wine": rows})[tmp_path / "wine"], strict=True):
        pd.testing.assert_frame_equal(found, expected[:count], rtol=1e-6, atol=1e-6, check_dtype=False)
    again = export_scorer(trained.client("wine"), tmp_path / "wine")  # an earlier export is replaced
    card = (tmp_path / "wine/model_card.md").read_text()
    assert "random rows" in again.checked and "- `trees` (extra_trees, 2): weight" in card
    path = tmp_path / "wine" / "trees" / "fold_0" / "model.npz"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(DataError, match="checksum differs"):
        load_folder(tmp_path / "wine")
    shutil.rmtree(path.parent)
    with pytest.raises(DataError, match="fold_0"):
        load_folder(tmp_path / "wine")


def altered(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        content = json.loads(path.read_text())
        change(content["clients"]["wine"]["recipe"])
        path.write_text(json.dumps(content))

    return alter


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (altered(lambda own: own["weights"].update(trees=2.0)), "must lie between 0 and 1"),
        (altered(lambda own: own["weights"].update(trees=0.5)), "of sum 1.16667, which must be 1"),
        (altered(lambda own: own["weights"].update(forest=0.1)), "weights of some of trees, network, federated"),
        (altered(lambda own: own.update(code="x")), "expected a recipe"),
        (lambda path: path.write_text("{"), "expected plain data"),
        (lambda path: path.write_text("{}"), "expected what fedlit fit writes"),
    ],
)
def test_an_altered_mixture_is_refused(trained: Mixture, alter: Callable[[Path], None], told: str) -> None:
    assert trained.folder is not None
    path = trained.folder / "mixture.json"
    kept = path.read_text()
    try:
        alter(path)
        with pytest.raises(FedlitError, match=told):
            trained.client("wine")
    finally:
        path.write_text(kept)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data.source.init_args.clients": ["wine"]}, "part 'federated': expected the clients of part 'network'"),
        ({"data.source.init_args.clients": ["wine", "digits"]}, "breast_cancer, wine, found digits, wine"),
        ({"seed": 9}, "the mixture decides it for all its parts"),
        ({"data.fold": 1}, "the mixture decides it"),
        ({"trainer.max_epoch": 1}, "Did you mean 'trainer.max_epochs'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(place: Path, changes: dict[str, Any], told: str) -> None:
    own = settings(place)
    del own["mixture"]["parts"]["trees"]
    own["mixture"]["parts"]["federated"]["set"] = changes
    with pytest.raises(ConfigError, match=told):
        Mixture(own).describe()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"folds": 1}, "folds: expected 0 for none, or 2 folds or more, found 1"),
        ({"mixture": {"weights": "equl"}}, "Did you mean 'equal'"),
        ({"mixture": {"weights": {"tree": 1}}}, "expected weights of trees, network, federated"),
        ({"mixture": {"shrinks": 1}}, "Did you mean 'shrink'"),
        ({"model": {}}, "expected some of mixture"),
        (
            {"mixture": {"parts": {"a": {"config": "nowhere.yaml"}}}},
            r"mixture\.parts\.a: config: nowhere.yaml: expected",
        ),
        ({"mixture": {"parts": {"a": {"go_alone": "gradient_boosting"}}}}, "none in any part|kept as arrays"),
        ({"mixture": {"parts": {"a": {}}}}, "expected config: FILE, or go_alone"),
        ({"mixture": {"parts": {"a b": {"config": "quickstart"}}}}, "expected a name of letters"),
        (
            {"mixture": {"parts": {"a": {"config": "quickstart_best"}}}},
            "found quickstart_best.yaml, which is a mixture",
        ),
    ],
)
def test_a_wrong_key_is_refused_before_anything_is_read(place: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings_from(settings(place, **change))


def test_what_is_typed_changes_what_the_file_says(place: Path) -> None:
    path = place / "best.yaml"
    path.write_text(yaml.safe_dump(settings(place)))
    typed = {
        "seed": "9", "folds": "3", "mixture.weights": "fitted", "mixture.shrink": "10",
        "parts.federated.trainer.max_epochs": "5", "parts.trees.grid.n_estimators": "[7]",
    }  # fmt: skip
    own = settings_of(path, typed)
    assert (own.seed, own.folds, own.weights, own.shrink) == (9, 3, "fitted", 10.0)
    assert own.parts["federated"].set["trainer.max_epochs"] == 5
    assert own.parts["trees"].grid == {"n_estimators": [7]}
    assert settings_of(path).trained() == settings_from(settings(place)).trained()
    (place / "again.yaml").write_text(own.text())  # a run's own configuration says the same
    assert settings_of(place / "again.yaml").trained() == own.trained()
    for key, told in (
        ("parts.fedrated.seed", "Did you mean 'federated'"),
        ("trainer.max_epochs", "For a part: --parts"),
    ):
        with pytest.raises(ConfigError, match=told):
            settings_of(path, {key: "1"})
    assert is_composite(["--config", str(path)]) and not is_composite(["--config=quickstart"])


def test_the_shipped_mixtures_name_parts_that_there_are() -> None:
    found = [path for path in config_folders()[-1].glob("*.yaml") if "mixture" in read_yaml(path)]
    assert "quickstart_best" in [path.stem for path in found]
    for path in found:
        assert all(part.config.is_file() for part in settings_of(path).parts.values())


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(place)
    yield place


def test_the_command_line(here: Path, trained: Mixture, capsys: pytest.CaptureFixture[str]) -> None:
    own = settings(here)
    (here / "tiny_best.yaml").write_text(yaml.safe_dump(own))
    arguments = ["--config", "tiny_best", "--trainer.default_root_dir", str(here / "typed"), "--folds", "0"]
    assert main(["describe", *arguments]) == 0
    told = capsys.readouterr().out
    assert "network    own: tiny" in told and "federated: tiny (trainer.max_epochs 4)" in told
    assert "Exchange every epoch" in told and "validation rows decide how they are mixed" in told
    assert main(["fit", *arguments, "--parts.federated.trainer.max_epochs", "1"]) == 0
    assert "Each part's auroc" in capsys.readouterr().out
    assert main(["test", *arguments]) == 0
    assert "mixture" in capsys.readouterr().out
    run = str(here / "typed" / "tiny_best")
    (table,) = Bundled(clients=["wine"]).tables(8)
    table.features.tail(12).to_csv(here / "new.csv", index=False)
    assert main(["predict", "--run", run, "--client", "wine", "--data", str(here / "new.csv")]) == 0
    scores = pd.read_csv(here / "new.scores.csv")
    expected = load_run(run, "wine", quiet=True).predict_proba(table.features.tail(12))
    np.testing.assert_allclose(scores.filter(like="probability_"), expected, atol=1e-6)
    assert main(["export", "--run", run, "--client", "breast_cancer", "--out", str(here / "out")]) == 0
    assert main(["predict", "--run", run, "--client", "wien", "--data", str(here / "new.csv")]) == 2
    assert "Did you mean 'wine'" in capsys.readouterr().err


def test_classes_keep_their_order_and_meet_by_name() -> None:
    def frame(order: list[str], rows: list[int], **columns: Any) -> pd.DataFrame:
        own = {f"probability_{label}": values for label, values in columns.items()}
        made = pd.DataFrame({"row": rows, "target": ["yes", "no"], **own, "predicted": "no", "task": "classification"})
        return made.assign(**{ORDER: json.dumps(order)})

    # the second class is the positive one, also where the columns came in another order beside other clients
    one = frame(["yes", "no"], [4, 2], no=[0.1, 0.8], yes=[0.9, 0.2])
    held = held_out_of("a", {"one": one, "two": one.iloc[::-1]})
    assert held.task.classes == ("yes", "no") and held.row.tolist() == [2, 4] and held.y.tolist() == [1, 0]
    np.testing.assert_array_equal(held.parts["one"], np.float32([[0.2, 0.8], [0.9, 0.1]]))
    # a model that has not seen a class gives it nothing
    two = frame(["no", "yes", "rare"], [2, 4], no=[0.2, 0.2], yes=[0.2, 0.8], rare=[0.6, np.nan])
    held = held_out_of("a", {"one": one, "two": two.assign(target=["no", "yes"])})
    assert held.task.classes == ("no", "yes", "rare")
    np.testing.assert_array_equal(held.parts["one"], np.float32([[0.8, 0.2, 0], [0.1, 0.9, 0]]))
    np.testing.assert_array_equal(held.parts["two"], np.float32([[0.2, 0.2, 0.6], [0.2, 0.8, 0]]))
    with pytest.raises(ConfigError, match="same rows and targets"):
        held_out_of("a", {"one": one, "two": two})

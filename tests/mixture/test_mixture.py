"""A mixture of several parts: trained on folds, tested, predicted with, killed and resumed,
exported."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from elsewhere import ROWS, scored_elsewhere
from federations import TINY

from fedlit.__main__ import main
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError, DataError, FedlitError
from fedlit.jobs.record import execute, read_record
from fedlit.mixture.export import export
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.parts import MORE_TIME, Part
from fedlit.mixture.written import has_mixture, settings_from, settings_of
from fedlit.run.config import config_folders
from fedlit.run.load import load
from fedlit.score import load as load_folder
from fedlit.score import load_run
from fedlit.train import checkpoint_file
from fedlit.weights import on_stack


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "tiny.yaml").write_text(TINY.format(epochs=2))
    return folder


def settings(place: Path, **changes: Any) -> dict[str, Any]:
    parts = {
        "trees": {"go_alone": "extra_trees", "grid": {"n_estimators": [5, 10]}},
        "network": {"config": str(place / "tiny.yaml"), "set": {"exchange.federated": []}},
        "federated": {"config": str(place / "tiny.yaml"), "set": {"trainer.max_epochs": 3}},
    }
    own = {
        "mixture": {"parts": parts, "admit": False, **changes.pop("mixture", {})},
        "seed": 8,
        "folds": 2,
    }
    return {**own, "name": "tiny_best", "trainer": {"default_root_dir": str(place)}, **changes}


@pytest.fixture(scope="module")
def trained(place: Path) -> Mixture:
    mixture = Mixture(settings(place))
    mixture.fit(quiet=True)
    return mixture


@pytest.fixture(scope="module")
def folder(trained: Mixture) -> Path:
    assert trained.folder is not None
    return trained.folder


@pytest.fixture
def written(folder: Path) -> Iterator[Path]:
    """What it wrote last; as it was, behind a test that alters it."""
    path = folder / "mixture.json"
    kept = path.read_text()
    yield path
    path.write_text(kept)


def test_each_row_is_predicted_once_by_a_model_new_to_it(trained: Mixture, folder: Path) -> None:
    whole = load(str(trained.settings.parts["network"].config), "--seed=8")
    tables = {table.name: table for table in whole.data.tables()}
    frame = pd.read_parquet(folder / "out_of_fold.parquet")
    parts = Part.of(trained.settings, folder)
    for (name, client), own in frame.groupby(["part", "client"]):
        table = tables[str(client)]
        rows = table.features.index[
            np.concatenate([table.splits["train"], table.splits["validation"]])
        ]
        assert sorted(own["row"]) == sorted(rows)
        assert (
            own.set_index("row")["target"].to_dict() == table.target.loc[rows].astype(str).to_dict()
        )
        for fold, held in own.groupby("fold"):
            dealt = next(
                one
                for one in parts[str(name)].load(int(str(fold))).data.tables()
                if one.name == client
            )
            assert not set(held["row"]) & set(dealt.features.index[dealt.splits["train"]])


def test_the_test_is_the_average_by_hand(trained: Mixture, folder: Path) -> None:
    results = trained.test(quiet=True)
    for table in Bundled(clients=["wine", "breast_cancer"]).tables(8):
        rows = table.features.iloc[table.splits["test"]]
        total = 0.0
        for name, part in Part.of(trained.settings, folder).items():
            for fold in (0, 1):
                own = part.fold(fold)  # a local baseline's arrays, or an ordinary run of fedlit
                scorer = load_folder(own / table.name) if name == "trees" else None
                scorer = scorer or load_run(own / "version_0", table.name, quiet=True)
                total = total + scorer.predict_proba(rows).astype(np.float64) / 2 / 3
        predicted = np.array(scorer.classes_)[np.asarray(total).argmax(1)]
        accuracy = float((predicted == table.target.iloc[table.splits["test"]].to_numpy()).mean())
        assert results.scores[table.name]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
        found = trained.client(table.name).predict_proba(rows)
        np.testing.assert_allclose(found, total, atol=1e-7)
        # in the same order of sums: the same bits as in the file of predictions
        frame = trained.predict(quiet=True)[table.name]
        np.testing.assert_array_equal(frame.filter(like="probability_").to_numpy(np.float32), found)
    written = json.loads((folder / "test.json").read_text())["clients"]["wine"]["parts"]
    assert [own["weight"] for own in written.values()] == pytest.approx([1 / 3] * 3)


def test_a_mixture_has_thresholds_and_subgroups(place: Path, tmp_path: Path) -> None:
    one = {"config": str(place / "tiny.yaml"), "set": {"data.leave_out": ["wine"]}}
    parts = {"trees": {**one, "go_alone": "extra_trees", "grid": {"n_estimators": [5]}}}
    score = {"threshold": {"specificity": 0.95}, "subgroups": {"mean radius": [14]}}
    own = settings(
        place, mixture={"parts": parts}, score=score, trainer={"default_root_dir": str(tmp_path)}
    )
    mixture = Mixture(own)
    mixture.fit(quiet=True)
    results = mixture.test(quiet=True)
    at = results.to_dict()["clients"]["breast_cancer"]["thresholds"][1]
    (table,) = Bundled(clients=["breast_cancer"]).tables(8)
    place_of = table.splits["test"]
    scorer = mixture.client("breast_cancer")
    probability = scorer.predict_proba(table.features.iloc[place_of])[:, 1]
    positive = (table.target.iloc[place_of] == scorer.classes_[1]).to_numpy()
    assert (
        at["sensitivity"] == (probability[positive] >= at["threshold"]).mean()
        and scorer.threshold == at["threshold"]
    )
    predicted = mixture.predict(quiet=True)["breast_cancer"]
    assert (
        predicted["predicted_at_threshold"].eq(scorer.classes_[1]).sum()
        == (probability >= at["threshold"]).sum()
    )
    assert mixture.folder is not None
    groups = pd.read_csv(mixture.folder / "test_subgroups.csv")
    small = table.features["mean radius"].iloc[place_of] < 14
    assert groups["rows"].tolist() == [small.sum(), (~small).sum()]
    again = settings_of(mixture.folder / "config.yaml", {"score.threshold": "youden"})
    assert again.score == {**score, "threshold": "youden"}


def test_more_than_two_classes_of_a_mixture_have_no_threshold(
    trained: Mixture, place: Path
) -> None:
    with pytest.raises(ConfigError, match="wine: 3 classes"):
        Mixture(settings(place, score={"threshold": "youden"})).test(quiet=True)


def bits(folder: Path) -> dict[str, str]:
    files = [
        folder / "mixture.json",
        folder / "out_of_fold.parquet",
        *folder.glob("parts/trees/*/*/*.npz"),
    ]
    found = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    for path in folder.glob("parts/*/*/version_0/checkpoints/last.ckpt"):
        state = checkpoint_file.load(path)["state_dict"]
        digest = hashlib.sha256(b"".join(own.numpy().tobytes() for own in state.values()))
        found[str(path.relative_to(folder))] = digest.hexdigest()
    assert len(found) == 2 + 4 + 4
    return found


def test_killed_in_the_second_part_it_ends_with_the_same_bits(
    folder: Path, place: Path, tmp_path: Path
) -> None:
    """The real command, by SIGKILL, as soon as fold 1 of the second part has a checkpoint."""
    own = settings(place, trainer={"default_root_dir": str(tmp_path)})
    (tmp_path / "best.yaml").write_text(yaml.safe_dump(own))
    begun = tmp_path / "tiny_best" / "version_0"
    command = [sys.executable, "-m", "fedlit", "fit", "--config", "best.yaml"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    until = time.monotonic() + 300
    while (
        not list(begun.glob("parts/network/fold_1/version_0/checkpoints/*"))
        and time.monotonic() < until
    ):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    told = process.communicate(timeout=60)[0].decode()
    assert process.returncode == -signal.SIGKILL, told
    before = (begun / "parts/network/fold_0/DONE").stat().st_mtime_ns
    second = begun / "parts/network/fold_1"
    saved = (second / "version_0/checkpoints/last.ckpt").is_file()
    assert not (begun / "mixture.json").exists()
    with pytest.raises(ConfigError, match=r"it was not trained to its end.*--ckpt_path last"):
        Mixture(own).test(quiet=True)
    resumed = Mixture(own)
    resumed.fit("last", quiet=True)
    assert resumed.folder == begun
    record = read_record(second)
    assert record is not None and record["resumed"] is saved
    assert (begun / "parts/network/fold_0/DONE").stat().st_mtime_ns == before
    assert bits(begun) == bits(folder)


@pytest.mark.full
def test_two_processes_leave_what_one_leaves(folder: Path, place: Path, tmp_path: Path) -> None:
    twice = Mixture(settings(place, trainer={"default_root_dir": str(tmp_path)}, workers=2))
    twice.fit(quiet=True)
    assert twice.folder is not None and bits(twice.folder) == bits(folder)


def test_new_weights_need_no_training_new_parts_are_refused(written: Path, place: Path) -> None:
    other = Mixture(
        settings(place, mixture={"weights": {"trees": 3, "network": 1, "federated": 0}})
    )
    other.fit("last", quiet=True)
    assert json.loads(written.read_text())["clients"]["wine"]["weights"] == {
        "trees": 0.75,
        "network": 0.25,
    }
    changed = settings(place, seed=9)
    changed["mixture"]["parts"]["trees"] = {"go_alone": "logistic_regression"}
    with pytest.raises(ConfigError, match=r"found changed seed, parts\.trees"):
        Mixture(changed).fit("last", quiet=True)


def test_a_limit_of_time_leaves_out_what_it_does_not_reach(place: Path, tmp_path: Path) -> None:
    mixture = Mixture(settings(place, trainer={"default_root_dir": str(tmp_path)}))
    mixture.fit(quiet=True, seconds=0)
    assert set(mixture.out) == {"network", "federated"} and set(mixture.held["wine"].parts) == {
        "trees"
    }
    assert mixture.built()["trees"].lacks.endswith(MORE_TIME)
    assert mixture.test(quiet=True).scores["wine"]["auroc"] > 0.9
    assert mixture.folder is not None
    part = Part.of(mixture.settings, mixture.folder)["network"]
    for job, seconds in zip(part.jobs(), (1e-9, 1e9), strict=True):
        execute(job, lambda job, limit: part.train(job.fold or 0, limit), seconds)
    assert "1 of 2 folds" in part.lacks


def test_the_whole_is_exported_with_its_stack(
    trained: Mixture, folder: Path, written: Path, tmp_path: Path
) -> None:
    (table,), stack = Bundled(clients=["wine"]).tables(8), [[0.3, 1.5], [0.0, 1.0], [-0.2, 0.8]]
    rows = table.features.tail(30)
    content = json.loads(written.read_text())
    whole = trained.client("wine")
    corrected = on_stack(whole.outcome, whole.predict_proba(rows).astype(float), stack)
    content["clients"]["wine"]["stack"] = stack
    written.write_text(json.dumps(content))
    made = export(folder, "wine", tmp_path / "wine")
    scorer = trained.client("wine")
    tested = trained.predict(quiet=True)["wine"].filter(like="probability_").to_numpy()
    assert "Checked: on 45 test rows" in made.checked
    np.testing.assert_allclose(scorer.predict_proba(rows), corrected, atol=1e-6)
    np.testing.assert_allclose(
        scorer.predict_proba(table.features.iloc[table.splits["test"]]), tested, atol=1e-6
    )
    expected = scorer.predict(rows)
    for count, found in zip(
        ROWS, scored_elsewhere({tmp_path / "wine": rows})[tmp_path / "wine"], strict=True
    ):
        pd.testing.assert_frame_equal(
            found, expected[:count], rtol=1e-6, atol=1e-6, check_dtype=False
        )
    card = (tmp_path / "wine/model_card.md").read_text()
    assert "corrected by an intercept" in card and "- `trees` (extra_trees, 2): weight" in card
    path = tmp_path / "wine" / "trees" / "fold_0" / "model.npz"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(DataError, match="checksum differs"):
        load_folder(tmp_path / "wine")
    shutil.rmtree(path.parent)
    with pytest.raises(DataError, match="fold_0"):
        load_folder(tmp_path / "wine")


def weighed(**weights: Any) -> Callable[[str], str]:
    def change(text: str) -> str:
        content = json.loads(text)
        content["clients"]["wine"]["weights"].update(weights)
        return json.dumps(content)

    return change


ALTERED: list[Any] = [
    (weighed(trees=2.0), "from 0 to 1"),
    (weighed(trees=0.5), "of sum 1"),
    (weighed(forest=0.0), "weights of some of trees, network, federated"),
    (lambda text: text.replace('"weights"', '"weight"'), "from 0 to 1"),
    (
        lambda text: text.replace('"stack": []', '"stack": [[0.0, 1.0]]'),
        "3 pairs as stack, found 1",
    ),
    (lambda text: text.replace('"stack": []', '"stack": [[0.0]]'), "pairs of numbers as stack"),
    (lambda text: "{", "expected plain data"),
    (lambda text: "{}", "expected what fedlit fit writes"),
]


@pytest.mark.parametrize(("change", "told"), ALTERED)
def test_what_was_altered_is_refused(
    trained: Mixture, written: Path, change: Callable[[str], str], told: str
) -> None:
    written.write_text(change(written.read_text()))
    with pytest.raises(FedlitError, match=told):
        trained.client("wine")


UNFIT: list[Any] = [
    (
        {"data.source.init_args.clients": ["wine"]},
        "part 'federated': expected the clients of part 'network'",
    ),
    ({"data.source.init_args.test": 0.5}, "part 'federated', client 'wine': .* rows"),
    ({"seed": 9}, "the mixture decides it for all its parts"),
    ({"trainer.max_epoch": 1}, "Did you mean 'trainer.max_epochs'"),
]


@pytest.mark.parametrize(("changes", "told"), UNFIT)
def test_parts_that_do_not_fit_are_refused(place: Path, changes: dict[str, Any], told: str) -> None:
    own = settings(place)
    del own["mixture"]["parts"]["trees"]
    own["mixture"]["parts"]["federated"]["set"] = changes
    with pytest.raises(ConfigError, match=told):
        Mixture(own).describe()


def test_a_misspelt_setting_of_a_local_model_is_refused(place: Path) -> None:
    """The plan refuses it, before anything is trained or written."""
    misspelt = settings(place)
    misspelt["mixture"]["parts"]["trees"]["grid"] = {"n_estimatrs": [5]}
    with pytest.raises(ConfigError, match=r"mixture\.parts\.trees\.grid: .*'n_estimators'"):
        Mixture(misspelt).describe()


def parts(**own: Any) -> dict[str, Any]:
    return {"mixture": {"parts": own}}


WRONG: list[Any] = [
    ({"folds": 1}, "folds: .* found 1"),
    ({"workers": 0}, "workers: .* found 0"),
    ({"model": {}}, "found 'model'"),
    ({"mixture": {"weights": "equl"}}, "mixture.weights: .*Did you mean 'equal'"),
    ({"mixture": {"weights": {"tree": 1}}}, "mixture.weights: .* found tree"),
    ({"mixture": {"weights": {"trees": -1}}}, "mixture.weights: .* at least 0"),
    ({"mixture": {"shrink": -1}}, "mixture.shrink: .* found -1"),
    ({"mixture": {"admit": 1}}, "mixture.admit: .* found 1"),
    ({"mixture": {"by": ["auroc"]}}, "mixture.by: .* found"),
    ({"mixture": {"shrinks": 1}}, "Did you mean 'shrink'"),
    ({"trainer": {"max_epochs": 3}}, "trainer: .* found 'max_epochs'; set it in .* a part"),
    ({"trainer": {"default_root_dir": 3}}, "trainer.default_root_dir: .* found 3"),
    (parts(a="quickstart"), "parts.a: .* found 'quickstart'"),
    (parts(a={"config": "nowhere.yaml"}), r"mixture\.parts\.a\.config: nowhere.yaml"),
    (
        parts(a={"go_alone": "gradient_boosting", "config": "quickstart"}),
        r"parts\.a\.go_alone: .* kept as arrays",
    ),
    (
        parts(a={"go_alone": "extra_trees", "config": "quickstart", "grid": {"a": 1}}),
        r"parts\.a\.grid\.a: .* found 1",
    ),
    (parts(a={}), r"parts\.a: expected config: FILE, or go_alone"),
    (parts(a={"go_alone": "ridge"}), "none in any part"),
    (parts(stack={"config": "quickstart"}), "a name of letters"),
    (parts(**{"a b": {"config": "quickstart"}}), "a name of letters"),
    (parts(a={"config": "quickstart_best"}), "the mixture quickstart_best.yaml"),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_a_wrong_key_is_refused_before_anything_is_read(
    place: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        settings_from(settings(place, **change))


def test_what_is_typed_changes_what_the_file_says(place: Path) -> None:
    path = place / "best.yaml"
    path.write_text(yaml.safe_dump(settings(place)))
    typed = {
        "seed": "9", "folds": "3", "mixture.weights": "fitted", "mixture.shrink": "10", "data.batches": "3",
        "parts.federated.trainer.max_epochs": "5", "parts.trees.grid.n_estimators": "[7]",
        "parts.mean.go_alone": "mean",
    }  # fmt: skip
    own = settings_of(path, typed)
    assert (own.seed, own.folds, own.mixing.weights, own.mixing.shrink) == (9, 3, "fitted", 10.0)
    assert own.parts["federated"].set == {"trainer.max_epochs": 5, "data.batches": 3}
    assert own.parts["trees"].grid == {"n_estimators": [7]}
    assert own.parts["mean"].go_alone == "mean" and own.parts["mean"].set == {"data.batches": 3}
    (place / "again.yaml").write_text(own.text())  # a run's own configuration says the same
    assert settings_of(place / "again.yaml").trained() == own.trained()
    for key, told in (
        ("parts.fedrated.seed", "Did you mean 'federated'"),
        ("trainer.max_epochs", "For a part: --parts"),
    ):
        with pytest.raises(ConfigError, match=told):
            settings_of(path, {key: "1"})
    assert has_mixture(["--config", str(path)]) and not has_mixture(["--config=quickstart"])
    # a flag may have no value
    assert has_mixture(["--config=nowhere", "--config", str(path), "--help"])


def test_the_shipped_mixtures_name_parts_that_there_are() -> None:
    found = [
        path for path in config_folders()[-1].glob("*.yaml") if has_mixture(["--config", str(path)])
    ]
    assert len(found) > 4 and all(len(settings_of(path).parts) > 1 for path in found)


def test_commands(
    place: Path,
    trained: Mixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    (place / "tiny_best.yaml").write_text(yaml.safe_dump(settings(place)))
    arguments = [
        "--config",
        "tiny_best",
        "--trainer.default_root_dir",
        str(place / "typed"),
        "--folds",
        "0",
    ]
    assert main(["describe", *arguments, "--mixture.weights", "together"]) == 0
    told = capsys.readouterr().out
    assert "network    own: tiny" in told and "federated: tiny (trainer.max_epochs 3)" in told
    assert "Exchange every epoch" in told and "each client sends one number" in told
    assert main(["fit", *arguments, "--parts.federated.trainer.max_epochs", "1"]) == 0
    told = capsys.readouterr().out
    assert "Each part's score on held-out rows" in told and "more scores with --all" in told
    assert main(["test", *arguments]) == 0
    assert "mixture" in capsys.readouterr().out
    run = str(place / "typed" / "tiny_best")
    (table,) = Bundled(clients=["wine"]).tables(8)
    table.features.tail(12).to_csv(place / "new.csv", index=False)
    assert (
        main(["predict", "--run", run, "--client", "wine", "--data", str(place / "new.csv")]) == 0
    )
    scores = pd.read_csv(place / "new.scores.csv")
    expected = load_run(run, "wine", quiet=True).predict_proba(table.features.tail(12))
    np.testing.assert_allclose(scores.filter(like="probability_"), expected, atol=1e-6)
    assert (
        main(["export", "--run", run, "--client", "breast_cancer", "--out", str(place / "out")])
        == 0
    )
    assert (
        main(["predict", "--run", run, "--client", "wien", "--data", str(place / "new.csv")]) == 2
    )
    assert "Did you mean 'wine'" in capsys.readouterr().err

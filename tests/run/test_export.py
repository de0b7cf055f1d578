"""Clients as folders of data: what they predict where PyTorch is not installed, and what cannot be
exported."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import federations
import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from contracts import one_in
from elsewhere import ROWS, scored_elsewhere
from federations import ASKING, METHODS, make_run
from made_tables import Given, reads_of
from pandas.api.types import is_numeric_dtype
from torch import Tensor

from fedlit import APFL, CNN, MLP, BiLSTM, GlobalLayers, TabM
from fedlit.client.client import FederatedClient
from fedlit.data.sources import Populations
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, RunError
from fedlit.mixture.export import Exported, export_scorer
from fedlit.run.predictions import scored_rows
from fedlit.run.run import Run
from fedlit.score import load
from fedlit.score.files import read_rows


def kinds(task: str) -> Source:
    """One client with columns of all kinds and with gaps, of a task."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    features = pd.DataFrame(
        {
            "x": pd.Series(x).mask(rng.random(80) < 0.1),
            "town": rng.choice(["Bonn", "Ulm"], 80),
            "yes": x > 0.3,
        }
    )
    target: Any = {
        "regression": pd.Series(1e5 + 30 * x, name="y"),
        "counts": pd.Series(rng.poisson(np.exp(x)), name="y"),
        "multi_label": pd.DataFrame(
            {"died": np.where(x > 0, "y", "n"), "back": (x > 1).astype(int)}
        ),
    }[task]
    splits = random_split(80, 0, 0.3, 0.2)
    return Given([ClientTable("ash", features, target, splits, ("town", "yes"), task=task)])


def with_network(network: Any, **options: Any) -> dict[str, Any]:
    return {
        "clients": ("ash",),
        "loop": {"client": partial(FederatedClient, network=network)},
        **options,
    }


SEQUENCES = Populations(populations=1, clients=1, reads=40, length=8, reference=500, flipped=[1])


# how a client predicts that cannot be exported → its logits, of what it would predict and of its
# rows
ODD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "LooksAtRows": lambda logits, x: logits if float(x.mean()) > 0 else -logits,
    "Draws": lambda logits, x: logits + torch.randn_like(logits),
    "NotInOnnx": lambda logits, x: logits + torch.special.bessel_j0(x[:, :1]),
    "CountsRows": lambda logits, x: logits * (1.0 if x.shape[0] == 4 else 2.0),
}


# each network, task and way to predict once
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "a number": with_network(partial(MLP, hidden=[8, 8], dropout=0.2), source=kinds("regression")),
    "several labels": with_network(
        partial(GlobalLayers, global_features=2, width=4, blocks=1, heads=2),
        source=kinds("multi_label"),
    ),
    "a count": with_network(partial(TabM, k=3, width=8, embedding=3), source=kinds("counts")),
    "cnn": with_network(CNN, data={"columns": ["x0", "x1", "x2", "x3"]}),
    "reads": with_network(partial(BiLSTM, hidden=6, width=4, dropout=0.1), source=SEQUENCES),
    "two networks": {"client": APFL},
    **{
        method: {**METHODS, **ASKING}[method]
        for method in ("ifedavg", "chfl", "forest", "pooled logistic", "stratified cox")
    },
}


def trained(
    folder: Path, source: Source | type[federations.Made] | None = None, **options: Any
) -> Run:
    if isinstance(source, type):
        options["source"] = source
        source = None
    run = make_run(folder, epochs=1, **options)
    if source is not None:
        run.data.source = source
    run.fit(quiet=True)
    return run


def exported(run: Run, folder: Path, client: str = "ash", **options: Any) -> Exported:
    return export_scorer(
        run.client(client),
        folder,
        rows={own.name: own for own in run.data.tables()}[client].features,
        **options,
    )


@dataclass
class Made:
    run: Run
    folder: Path
    checked: str

    @property
    def table(self) -> ClientTable:
        return self.run.data.tables()[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """A run of each case, and its first client as a folder."""
    here = tmp_path_factory.mktemp("exported")
    found = {}
    for name, options in CASES.items():
        run = trained(here / "runs" / name, **options)
        found[name] = Made(
            run, here / name, exported(run, here / name, run.data.tables()[0].name).checked
        )
    return found


def test_scores_elsewhere_are_the_runs(made: dict[str, Made]) -> None:
    """Of all kinds of networks, clients and tasks, without PyTorch; of any number of rows."""
    rows = {own.folder: own.table.features for own in made.values()}
    found = scored_elsewhere(rows)
    for own in made.values():
        scorer = own.run.client(own.table.name)
        assert own.checked.startswith("Checked: on ")
        for count, told in zip(ROWS, found[own.folder], strict=True):
            expected = scorer.predict(rows[own.folder].iloc[:count])
            pd.testing.assert_frame_equal(
                _numbers(told), _numbers(expected), rtol=1e-6, atol=1e-6, check_dtype=False
            )


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Of sequences, a column for each position's probability."""
    texts = [
        name
        for name in map(str, frame)
        if name.startswith("probability") and not is_numeric_dtype(frame[name])
    ]
    each = [
        frame.pop(name).str.split(" ", expand=True).astype(float).add_prefix(name)
        for name in texts
        if len(frame)
    ]
    return pd.concat([frame, *each], axis=1)


def test_reads_are_scored_by_their_positions(made: dict[str, Made], tmp_path: Path) -> None:
    own = made["reads"]
    scorer = load(made["reads"].folder)
    assert "one of 0, 1 at each position" in (own.folder / "model_card.md").read_text()
    texts = reads_of(own.table)
    letters = pd.DataFrame([list(read) for read in texts], columns=list(own.table.features))
    expected = own.run.client(own.table.name).predict(own.table.features)["predicted"].tolist()
    assert scorer.predict(letters)["predicted"].tolist() == expected
    place = next(place for place, text in enumerate(texts) if "T" in text)
    odd = [texts[place].lower().replace("t", "u"), "", texts[place] + "AA", "ACR"]
    (tmp_path / "odd.fa").write_text("".join(f">r\n{read}\n" for read in odd))
    raw = read_rows(tmp_path / "odd.fa", scorer.encoder)
    told = scorer.predict(raw.frame)["predicted"]
    assert told[0] == told[2] == expected[place] and told[1] == "?" * 8 and told[3][3:] == "?" * 5
    for word in (
        f"u to T ({texts[place].count('T')})",
        "R to N (1)",
        "2 reads shorter",
        "1 read longer",
    ):
        assert word in " ".join(raw.notes)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("LooksAtRows", "LooksAtRows"),
        ("NotInOnnx", "NotInOnnx"),
        ("CountsRows", "ash"),
        ("Draws", "random"),
    ],
)
def test_a_client_that_cannot_be_exported_is_named(
    how: str, named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    forward = {"forward": lambda self, x: ODD[how](FederatedClient.forward(self, x), x)}
    run = trained(tmp_path, client=type(how, (FederatedClient,), forward))
    capfd.readouterr()
    with pytest.raises(RunError, match=named) as found:
        exported(run, tmp_path / "out" / "ash")
    assert (
        len(str(found.value)) < 700
        and "'ash'" in str(found.value)
        and "predict --run" in str(found.value)
    )
    assert not list((tmp_path / "out").iterdir())
    assert capfd.readouterr() == ("", "")


def test_an_export_that_predicts_otherwise_is_not_kept(
    made: dict[str, Made], tmp_path: Path
) -> None:
    scorer = made["plain"].run.client("ash")
    evaluate = scorer.function.client.evaluate  # type: ignore[attr-defined]
    scorer.function.client.evaluate = lambda batch: [own.flip(1) for own in evaluate(batch)[:1]]  # type: ignore[attr-defined]
    with pytest.raises(RunError, match="differences of up to"):
        export_scorer(scorer, tmp_path / "out" / "ash")
    assert not list((tmp_path / "out").iterdir())


def test_without_the_packages_installing_them_is_explained(
    made: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match="pip install onnxruntime"):
        load(made["plain"].folder)
    for name in ("onnxruntime", "onnxscript", "onnx"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(ConfigError, match=r"pip install '\.\[export\]'"):
                exported(made["plain"].run, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_is_written_for_people_and_what_is_replaced(
    made: dict[str, Made], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = made["plain"].run
    folder = shutil.copytree(made["plain"].folder, tmp_path / "ash")
    assert "Unknown: nobody has run" in (folder / "model_card.md").read_text()
    done = exported(run, folder, scores={"rows": 27, "auroc": 0.875, "auprc": None})
    card = (folder / "model_card.md").read_text()
    assert (
        "# y at ash" in card
        and "| AUROC | 0.875 |" in card
        and "Of 27 rows" in card
        and done.checked in card
    )
    assert "| x0 | numbers, " in card
    assert str(made["plain"].folder.parent) not in card + (folder / "scorer.json").read_text()
    assert sorted(path.name for path in folder.iterdir()) == [
        "columns.json", "encoder.json", "model.onnx", "model_card.md", "scorer.json",
    ]  # fmt: skip
    assert capfd.readouterr() == ("", "")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.txt").touch()
    with pytest.raises(
        ConfigError, match="--out: expected a new folder, or one of an earlier export"
    ):
        exported(run, tmp_path / "mine")
    with pytest.raises(
        ConfigError, match="expected a client of a run, found one that was exported"
    ):
        export_scorer(load(folder), tmp_path / "again")


def test_the_network_alone_is_written(made: dict[str, Made]) -> None:
    """APFL mixes two networks: their mixture is written, and neither of them, nor any line of
    source."""
    tensors = {}
    for name in ("two networks", "plain"):
        content = (made[name].folder / "model.onnx").read_bytes()
        tensors[name] = sorted(
            tuple(own.dims) for own in onnx.load_from_string(content).graph.initializer
        )
        assert b".py" not in content and str(made[name].folder.parent).encode() not in content
    assert tensors["two networks"] == tensors["plain"] and tensors["plain"]


@pytest.mark.parametrize("method", one_in(8, METHODS))
def test_a_scorer_predicts_what_the_run_predicts_and_scores(method: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, **METHODS[method])
    run.fit(quiet=True)
    told = run.predict(quiet=True)
    tables = {own.name: own for own in run.data.tables()}
    run.test(quiet=True)
    scored = {site: rows.frame() for site, rows in scored_rows(run.loop, run.data, "test").items()}
    assert set(told) == set(scored)
    for site, frame in told.items():
        found = run.client(site).predict(tables[site].features.loc[frame["row"]])
        pd.testing.assert_frame_equal(
            found.reset_index(drop=True), frame.drop(columns="row"), check_exact=True
        )
        pd.testing.assert_frame_equal(scored[site][list(frame)], frame, rtol=1e-5, atol=1e-6)


def test_of_pooled_rows_a_party_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, **METHODS["centralized"])
    run.fit(quiet=True)
    for name in ("centralized", "all"):
        with pytest.raises(
            ConfigError, match="expected one of the clients ash, birch, cedar, found"
        ):
            run.client(name)

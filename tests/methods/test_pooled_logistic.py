"""PooledLogistic: what clients find together is the optimum on pooled rows, and what each makes of
it its own."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import Made, different, trained, weights
from sklearn.linear_model import LogisticRegression, Ridge

from fedlit import Newton, PooledLogistic
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.methods.penalised import INTERCEPT, choose
from fedlit.run.run import Run

INFINITE = float("inf")
COLUMNS = {
    "ash": ["age", "max. rate", "ash's"],
    "birch": ["age", "max. rate", "salt"],
    "cedar": ["age", "salt", "cedar's", "sex"],
}


class Sites(Made):
    """Three clients of different columns; ``labels`` or numbers."""

    def __init__(self, number: bool = False) -> None:
        super().__init__()
        self.number = number

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for place, name in enumerate(self.clients):
            rng = np.random.default_rng([seed, place])
            frame = pd.DataFrame(rng.normal(size=(70, len(COLUMNS[name]))), columns=COLUMNS[name])
            z = frame["age"] - 0.5 * frame.iloc[:, -1] + 0.4 * place + rng.logistic(size=70)
            y = pd.Series(z if self.number else (z > 0).astype(int), name="died")
            if "sex" in frame:
                frame["sex"] = rng.integers(0, 2, 70)
            task = {"name": "regression", "targets": "pooled"} if self.number else None
            splits = random_split(70, seed, 0.2, 0.2)
            categories = ("sex",) if "sex" in frame else ()
            tables.append(ClientTable(name, frame, y, splits, categories, task=task))
        return tables


def fitted(
    folder: Path, rule: Any = None, source: Any = None, federated: Any = ("prior",), **options: Any
) -> Run:
    data = {"scaling": "pooled", "batches": 1, **options.pop("data", {})}
    exchange = {"federated": list(federated), "rule": rule or Newton()}
    loop = {"client": partial(PooledLogistic, **options)}
    return trained(
        folder, loop=loop, exchange=exchange, data=data, epochs=1, source=source or Sites()
    )


def priors(run: Run, client: str) -> dict[str, float]:
    return {
        name: value.item() for name, value in run.loop.federation[client].prior.named_parameters()
    }


def optimum(run: Run, clients: list[str], ridge: float) -> dict[str, float]:
    """Of one model on the rows of clients, by name, with their own intercepts: scikit-learn's."""
    federation = run.loop.federation
    blocks = list[np.ndarray]()
    names = sorted({column for name in clients for column in federation[name].spec.features})
    for place, name in enumerate(clients):
        block = np.zeros((len(federation.rows(name)), len(names) + len(clients)))
        block[:, [names.index(column) for column in federation[name].spec.features]] = (
            federation.rows(name).x
        )
        # a ridge on this is INTERCEPT on what it stands for
        block[:, len(names) + place] = (ridge / INTERCEPT) ** 0.5
        blocks.append(block)
    x = np.concatenate(blocks)
    y = np.concatenate([federation.rows(name).y.double().numpy() for name in clients])
    logistic = LogisticRegression(
        C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-12
    )
    model = logistic if len(np.unique(y)) == 2 else Ridge(ridge, fit_intercept=False)
    found = model.fit(x, y).coef_.ravel()
    return {
        name.replace(".", "%2E"): float(value) for name, value in zip(names, found, strict=False)
    }


@pytest.mark.parametrize("number", [False, True], ids=["labels", "numbers"])
def test_what_others_found_is_the_optimum_on_their_pooled_rows(
    number: bool, tmp_path: Path
) -> None:
    run = fitted(tmp_path, Newton(ridge=2.0), Sites(number=number))
    output = "died (number)" if number else "1"
    for client in COLUMNS:
        others = [name for name in COLUMNS if name != client]
        expected = optimum(run, others, 2.0)
        found = priors(run, client)
        shared = {
            "ash": {"age", "max%2E rate"},
            "birch": {"age", "max%2E rate", "salt"},
            "cedar": {"age", "salt"},
        }
        for name, value in found.items():
            column = name.removeprefix(f"{output}: ")
            assert value == pytest.approx(
                expected[column] if column in shared[client] else 0.0, abs=1e-6
            )
    steps = run.exchange.rule.scalars["newton_steps"]
    assert run.exchange.rounds == 1 and (steps == 2 if number else 4 <= steps <= 10)


def test_at_full_strength_it_is_pooled_with_own_intercepts(tmp_path: Path) -> None:
    run = fitted(tmp_path, Newton("all"), strength=INFINITE, ridge=3.0)
    expected = optimum(run, list(COLUMNS), 3.0)
    for name, client in run.loop.federation.items():
        columns = client.spec.features
        found = client.coefficients[0].tolist()  # type: ignore[index]
        assert found == pytest.approx(
            [expected[column.replace(".", "%2E")] for column in columns], abs=1e-5
        )
        rows = run.loop.federation.rows(name)
        residual = client.probabilities(client(rows.x))[:, 1] - rows.y
        assert residual.sum().abs() < 1e-3  # its intercept is its own optimum


def test_without_others_it_is_the_clients_own_ridge_regression(tmp_path: Path) -> None:
    alone = fitted(tmp_path / "a", federated=(), ridge=3.0)
    left = fitted(tmp_path / "b", strength=0.0, ridge=3.0)
    for name, client in alone.loop.federation.items():
        rows = alone.loop.federation.rows(name)
        model = LogisticRegression(C=1 / 3.0, tol=1e-10, max_iter=1000).fit(
            rows.x.double().numpy(), rows.y.numpy()
        )
        assert client.coefficients[0].tolist() == pytest.approx(model.coef_[0].tolist(), abs=1e-4)  # type: ignore[index]
        assert torch.equal(client.coefficients, left.loop.federation[name].coefficients)  # type: ignore[arg-type]
    numbers = fitted(
        tmp_path / "c", federated=(), ridge=3.0, source=Sites(number=True)
    ).loop.federation
    rows = numbers.rows("ash")
    ridge = Ridge(3.0).fit(rows.x.double().numpy(), rows.y.double().numpy())
    assert numbers["ash"].coefficients[0].tolist() == pytest.approx(ridge.coef_.tolist(), abs=1e-5)  # type: ignore[index]


def test_clients_share_the_classes_of_equal_names(tmp_path: Path) -> None:
    run = fitted(tmp_path, source=Made())  # classes 0 to 2, 0 and 1, 0 to 3
    ash = run.loop.federation["ash"]
    birch = run.loop.federation["birch"]
    assert {name.partition(":")[0] for name in priors(run, "birch")} == {"1"}
    found = priors(run, "cedar")
    assert all(
        (value != 0) == (name[0] != "3" and "x5" not in name) for name, value in found.items()
    )
    x = run.loop.federation.rows("ash").x
    against = (x @ ash.coefficients.T + ash.intercept).sigmoid()  # type: ignore[operator]
    assert torch.allclose(
        ash.probabilities(ash(x)), against / against.sum(1, keepdim=True), atol=1e-6
    )
    assert birch(run.loop.federation.rows("birch").x).shape[1] == 1
    assert run.fit("last", quiet=True) is not None  # nothing is left to do
    again = fitted(tmp_path / "b", source=Made(), data={"batch_size": 8, "batches": None})
    assert different(weights(run), weights(again)) == []  # batches mean nothing


def test_cross_validation_believes_who_is_right() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(60, 4))
    right = torch.tensor([[1.0, -2.0, 0.5, 0.0]]).double()
    x = torch.tensor(drawn)
    y = torch.tensor((drawn @ right[0].numpy() + rng.logistic(size=60) > 0.3).astype(float))
    assert choose(x, [y], "logistic", right).strength >= 10
    assert choose(x, [y], "logistic", -right).strength == 0.3
    alone = choose(x, [y], "logistic", 0 * right)
    assert alone.strength == 0 and alone.ridge in (0.3, 1.0, 3.0) and 0.2 < alone.loss < 0.693
    few = choose(x[:9], [y[:9]], "logistic", right)
    assert (few.strength, few.ridge) == (INFINITE, 3.0)

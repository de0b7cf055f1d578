"""An optimizer trains with what is written for it, and with its own defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedlit

BASE = """
data: {source: {class_path: fedlit.Bundled}}
model:
  client: {class_path: fedlit.FederatedClient, init_args: {network: fedlit.MLP}}
"""
SGD = "{class_path: torch.optim.SGD, init_args: {lr: 0.1}}"


def made(*args: str, config: str = "quickstart.yaml") -> torch.optim.Optimizer:
    run = fedlit.load(config, *args)
    return run.loop.federation.training.optimizer([torch.nn.Parameter(torch.ones(1))])


@pytest.mark.parametrize(
    "args",
    [
        ["--model.optimizer=torch.optim.SGD", "--model.optimizer.lr=0.1"],
        ["--model.optimizer=SGD", "--model.optimizer.init_args.lr=0.1"],
        [f"--model.optimizer={SGD}"],
        ["--config", "own.yaml"],
        ["--config", "own.yaml", "--model.optimizer.lr=0.1"],
    ],
)
def test_another_class_starts_from_its_own_defaults(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(f"model: {{optimizer: {SGD}}}\n")
    Path("alone.yaml").write_text(BASE + f"  optimizer: {SGD}\n")
    expected = torch.optim.SGD([torch.ones(1)], lr=0.1).defaults
    assert made(*args).defaults == expected
    assert made(config="alone.yaml").defaults == expected


def test_the_same_class_keeps_what_a_layer_below_says() -> None:
    below = fedlit.load("quickstart.yaml").settings or {}
    found = made("--model.optimizer=torch.optim.AdamW", "--model.optimizer.lr=0.3").defaults
    assert found["lr"] == 0.3 and found["weight_decay"] == below["model.optimizer.init_args.weight_decay"] == 1e-4


def test_a_method_keeps_the_rate_of_a_configuration_that_fits(tmp_path: Path) -> None:
    fits, other = tmp_path / "fits.yaml", tmp_path / "other.yaml"
    fits.write_text(BASE + "  optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.3, momentum: 0.9}}\n")
    other.write_text(BASE + "  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.3}}\n")
    found = made("--method=scaffold", config=str(fits)).defaults
    assert (found["lr"], found["momentum"]) == (0.3, 0.0)  # momentum it cannot do with
    assert made("--method=scaffold", config=str(other)).defaults["lr"] == 0.05
    assert made("--method=scaffold", "--model.optimizer.lr=0.2", config=str(fits)).defaults["lr"] == 0.2


def test_a_scheduler_of_another_class_starts_from_its_own_defaults(tmp_path: Path) -> None:
    below = tmp_path / "below.yaml"
    below.write_text("model: {scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 3, "
                     "gamma: 0.5}}}\n")  # fmt: skip
    found = fedlit.load(
        "quickstart.yaml", f"--config={below}", "--model.scheduler=torch.optim.lr_scheduler.ExponentialLR",
        "--model.scheduler.gamma=0.9",
    )  # fmt: skip
    assert (found.settings or {})["model.scheduler.init_args.gamma"] == 0.9

"""pFedMe: its pull has a gradient, w follows by it, and on quadratics both come to rest where Moreau envelopes say."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import SLOW, SmallNet, make_run
from methods.quadratic import point, problems, quadratic, rest

from fedlit.data.loader import Batch
from fedlit.errors import ConfigError
from fedlit.methods import PFedMe
from fedlit.nn import MLP
from fedlit.spec import ClientSpec

ONE = dict.fromkeys(("ash", "birch", "cedar"), 1)


def test_the_pull_has_its_gradient_and_w_follows_by_the_formula(tmp_path: Path) -> None:
    """A known public implementation detaches the pull, so that it adds nothing."""
    client = partial(PFedMe, network=SmallNet, strength=2.0, inner_steps=1, eta=0.1)
    run = make_run(
        tmp_path, loop={"client": client, "optimizer": SLOW}, exchange={"federated": ["core"], "every": {"epochs": 2}}
    )
    run.fit(quiet=True)
    ash = run.loop.federation["ash"].train()
    rows, own = run.data.train_loaders["ash"].rows, dict(ash.personal.named_parameters())
    w = {name: value.clone() for name, value in ash.named_parameters() if not name.startswith("personal.")}
    torch.manual_seed(0)
    total = torch.autograd.grad(ash.objective(rows.x, rows.y), list(own.values()))
    torch.manual_seed(0)
    plain = torch.autograd.grad(ash.loss(ash(rows.x), rows.y), list(own.values()))
    for (name, theta), with_it, without in zip(own.items(), total, plain, strict=True):
        pulled = 2.0 * (theta - w[name]) if name.startswith("core.") else torch.zeros_like(theta)
        # but for a shift before a normalisation, which has no gradient
        assert name == "core.0.bias" or not name.startswith("core.") or pulled.abs().max() > 1e-3
        torch.testing.assert_close(with_it - without, pulled, atol=1e-5, rtol=1e-4)
    ash.training_step(Batch(rows.x, rows.y), 0)
    for name, value in ash.named_parameters():
        if name in w:
            federated = name.startswith("core.")
            expected = w[name] - 0.1 * 2.0 * (w[name] - own[name]) if federated else w[name]
            torch.testing.assert_close(value, expected)


def test_on_quadratics_w_minimises_the_envelopes_and_models_are_proximal_points(tmp_path: Path) -> None:
    client = partial(PFedMe, strength=1.0, inner_steps=10, eta=0.5)
    run = quadratic(tmp_path, client=client, lr=0.3, steps=ONE, rounds=150)
    run.fit(quiet=True)
    own = problems(run)
    w = rest(own, lr=0.3, steps=dict.fromkeys(own, float("inf")), mu=1.0)
    assert point(run) == pytest.approx(w, abs=1e-4)
    for name, one in own.items():
        assert point(run, name, "personal.") == pytest.approx(one.near(w, 1.0), abs=1e-4)
        assert np.abs(one.near(w, 1.0) - w).max() > 0.01


def test_what_is_refused(tmp_path: Path) -> None:
    spec = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())
    for wrong in ({"strength": 0}, {"inner_steps": 0}, {"eta": 0.1, "strength": 15}):
        with pytest.raises(ConfigError, match="PFedMe: expected strength and eta above 0 with a product of at most 1"):
            PFedMe(spec, MLP, **wrong)  # type: ignore[arg-type]
    run = make_run(tmp_path, client=PFedMe, exchange={"federated": ["core"]}, loop={"accumulate": 2})
    with pytest.raises(ConfigError, match=r"client 'ash': PFedMe takes 5 steps .* model.accumulate: 1, found 2"):
        run.describe()

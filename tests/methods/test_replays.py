"""Personalised methods take the steps of their papers, replayed in plain torch beside the real
loop."""

from copy import deepcopy
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import make_run, weights
from torch import Tensor, nn
from torch.nn import functional

from fedlit import (
    BinaryCrossEntropy,
    ClientSpec,
    FedALA,
    FedAMP,
    FedPAC,
    FedPACMean,
    FedProto,
    FedProx,
    FedRoD,
    Network,
    PrototypeMean,
)
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError
from fedlit.run.run import Run
from fedlit.tasks import Regression

LR = 0.2
ROUNDS = 4
CLOSE = 1e-6
ETA = 100.0
SPREAD = 1e-5


class Small(Network):
    """Three layers; features of four numbers."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 6), nn.Tanh()),
            nn.Sequential(nn.Linear(6, 4), nn.Tanh()),
            nn.Linear(4, num_outputs),
        )


def run_of(folder: Path, client: Any, align: str = "none", **exchange: Any) -> Run:
    """Clients of two, three and four classes: full-batch gradient descent, an exchange after each
    step."""
    return make_run(
        folder,
        loop={
            "client": partial(client, network=Small),
            "optimizer": partial(torch.optim.SGD, lr=LR),
        },
        exchange={"federated": ["core"], "guard": False, **exchange},
        data={"batches": 1},
        align=align,
        epochs=ROUNDS,
        logger=False,
        check_val_every_n_epoch=ROUNDS,
    )


def start_of(run: Run) -> tuple[dict[str, Any], dict[str, Rows]]:
    """Copies of the clients as they start, and their training rows, by name."""
    run.describe()
    clients = {name: deepcopy(client) for name, client in run.loop.federation.items()}
    return clients, {name: run.data.train_loaders[name].rows for name in clients}


def features(client: Any, x: Tensor) -> Tensor:
    z: Tensor = client.core(client.encoder(x))
    return z


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The loss of a softmax; one logit is the difference of two."""
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return functional.cross_entropy(logits, y)


@torch.no_grad()
def descend(loss: Tensor, parameters: list[nn.Parameter]) -> None:
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.sub_(LR * gradient)


@torch.no_grad()
def average(modules: list[nn.Module]) -> None:
    """Set the parameters of all modules to their mean."""
    for same in zip(*(module.parameters() for module in modules), strict=True):
        mean = torch.stack(list(same)).mean(0)
        for parameter in same:
            parameter.copy_(mean)


def assert_same(run: Run, hand: dict[str, nn.Module]) -> None:
    """All parameters are those of the steps by hand."""
    real = weights(run)
    for name, client in hand.items():
        for key, value in client.named_parameters():
            torch.testing.assert_close(
                real[f"clients.{name}.{key}"], value.detach(), atol=CLOSE, rtol=0, msg=key
            )


def balanced(logits: Tensor, y: Tensor) -> Tensor:
    """The balanced softmax: −log n_y e^{g_y} / Σ n_c e^{g_c}."""
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    powers = torch.stack([(y == label).sum() for label in range(logits.shape[1])]) * logits.exp()
    return -(powers.gather(1, y[:, None])[:, 0] / powers.sum(1)).log().mean()


def test_fedrod_trains_two_heads_by_two_losses(tmp_path: Path) -> None:
    run = run_of(tmp_path, FedRoD)
    hand, rows = start_of(run)
    run.fit(quiet=True)
    for _ in range(ROUNDS):
        for name, client in hand.items():
            x = rows[name].x
            y = rows[name].y
            shared = [
                *client.encoder.parameters(),
                *client.core.parameters(),
                *client.head.parameters(),
            ]
            z = features(client, x)
            fixed, generic = z.detach(), client.head(z)
            both = generic.detach() + client.personal(fixed)
            own = list(client.personal.parameters())
            first = balanced(generic, y)
            second = cross_entropy(both, y)
            descend(first, shared)
            descend(second, own)
        average([client.core for client in hand.values()])
    assert_same(run, hand)
    ash = run.loop.federation["ash"].eval()
    z = features(ash, rows["ash"].x)
    torch.testing.assert_close(ash(rows["ash"].x), ash.head(z) + ash.personal(z))  # type: ignore[operator]


def test_binary_cross_entropy_takes_the_step_of_each_class(tmp_path: Path) -> None:
    run = run_of(tmp_path, BinaryCrossEntropy)
    hand, rows = start_of(run)
    run.fit(quiet=True)
    for _ in range(ROUNDS):
        for name, client in hand.items():
            logits = client(rows[name].x)
            y = rows[name].y
            if logits.shape[1] == 1:
                logits = torch.cat([torch.zeros_like(logits), logits], 1)
            loss = functional.binary_cross_entropy(
                logits.softmax(1), functional.one_hot(y, logits.shape[1]).float()
            )
            descend(loss, list(client.parameters()))
        average([client.core for client in hand.values()])
    assert_same(run, hand)


def test_binary_cross_entropy_weighs_classes_and_stays_finite() -> None:
    spec = ClientSpec("ash", ("age",), (0, 1, 2), {}, (), class_rows=(4, 2, 1))
    plain = BinaryCrossEntropy(spec, Small)
    weighted = BinaryCrossEntropy(spec, Small, class_weights="balanced")
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 0, 1, 2, 1])
    single = torch.stack([plain.loss(logits[[row]], y[[row]]) for row in range(5)])
    share = 1 / torch.tensor([4.0, 2.0, 1.0])[y]
    torch.testing.assert_close(weighted.loss(logits, y), (single * share).sum() / share.sum())
    members = torch.stack([logits, logits.flip(1)], 1)
    torch.testing.assert_close(
        plain.loss(members, y), (plain.loss(logits, y) + plain.loss(logits.flip(1), y)) / 2
    )
    certain = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    plain.loss(certain, torch.tensor([1])).backward()
    assert certain.grad is not None and bool(certain.grad.isfinite().all())


def test_binary_cross_entropy_is_of_classes_alone() -> None:
    number = ClientSpec("ash", ("age",), (), {}, (), task=Regression())
    with pytest.raises(ConfigError, match="task regression"):
        BinaryCrossEntropy(number, Small)


def test_fedala_learns_which_elements_to_take_over(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, partial(FedALA, adaptive=["core.0.weight"], share=1.0, eta=ETA, threshold=SPREAD)
    )
    hand, rows = start_of(run)
    run.fit(quiet=True)
    mixing = {name: torch.ones(4, 6) for name in hand}
    passes = []
    for number in range(ROUNDS):
        for name, client in hand.items():
            descend(cross_entropy(client(rows[name].x), rows[name].y), list(client.parameters()))
        sent = {name: client.core[0].weight.detach().clone() for name, client in hand.items()}
        average([client.core for client in hand.values()])
        for name, client in hand.items():
            weight = client.core[0].weight
            received = weight.detach().clone()
            losses: list[float] = []
            while True:  # by the gradient of the weights themselves
                w = mixing[name].requires_grad_()
                mixture = {"core.0.weight": sent[name] + (received - sent[name]) * w}
                loss = cross_entropy(
                    torch.func.functional_call(client, mixture, (rows[name].x,)), rows[name].y
                )
                mixing[name] = (w - ETA * torch.autograd.grad(loss, w)[0]).detach().clamp(0, 1)
                losses.append(loss.item())
                if number or (len(losses) > 10 and np.std(losses[-10:]) < SPREAD):
                    break
            passes.append(len(losses))
            weight.data = sent[name] + (received - sent[name]) * mixing[name]
    assert_same(run, hand)
    found = run.loop.federation["ash"].weights.get_buffer("core/0/weight")
    torch.testing.assert_close(found, mixing["ash"], atol=1e-5, rtol=0)
    assert 0 < (found < 1).sum() < found.numel() and max(passes[:3]) > 11 and set(passes[3:]) == {1}


def test_fedproto_draws_features_to_the_mean_of_their_label(tmp_path: Path) -> None:
    run = run_of(tmp_path, partial(FedProto, strength=3.0), federated=[], rule=PrototypeMean())
    hand, rows = start_of(run)
    run.fit(quiet=True)
    prototypes: dict[int, Tensor] = {}
    for _ in range(ROUNDS):
        for name, client in hand.items():
            x = rows[name].x
            y = rows[name].y
            z = features(client, x)
            pulls = [
                (z[row] - prototypes[label]).square().mean()
                for row, label in enumerate(y.tolist())
                if prototypes
            ]
            loss = cross_entropy(client.head(z), y) + 3.0 * sum(pulls) / len(y)
            descend(loss, list(client.parameters()))
        every = torch.cat(
            [features(client, rows[name].x) for name, client in hand.items()]
        ).detach()
        # a mean by rows is that of all rows together
        labels = torch.cat([rows[name].y for name in hand])
        prototypes = {label: every[labels == label].mean(0) for label in labels.unique().tolist()}
    assert_same(run, hand)
    birch: Any = run.loop.federation["birch"]
    torch.testing.assert_close(birch.received[1], prototypes[1], atol=CLOSE, rtol=0)
    assert sorted(prototypes) == [0, 1, 2, 3]  # the last of which only one client has


@pytest.mark.parametrize(("alpha", "sigma"), [(0.0002, 0.001), (2.0, 0.9)])
def test_fedamp_moves_clients_along_the_gradient_of_attention(
    alpha: float, sigma: float, tmp_path: Path
) -> None:
    rule = FedAMP(alpha, sigma)
    run = run_of(tmp_path, partial(FedProx, mu=0.8), rule=rule, every={"epochs": 2})
    hand, rows = start_of(run)
    run.fit(quiet=True)
    cores = {name: list(client.core.parameters()) for name, client in hand.items()}
    for _ in range(ROUNDS // 2):
        received = {name: [own.detach().clone() for own in core] for name, core in cores.items()}
        for name, client in hand.items():
            for _ in range(2):
                loss = cross_entropy(client(rows[name].x), rows[name].y)
                pairs = zip(cores[name], received[name], strict=True)
                loss = loss + 0.8 / 2 * sum((own - u).square().sum() for own, u in pairs)
                descend(loss, list(client.parameters()))
        # U = W − α ∇ Σ A(‖w_i − w_j‖²), whose factor 2 is part of α
        w = torch.stack(
            [torch.cat([own.detach().flatten() for own in core]) for core in cores.values()]
        )
        w.requires_grad_()
        distances = (w[:, None] - w[None]).square().sum(2)
        attention = (1 - (-distances / sigma).exp()).triu(1).sum()
        shift = torch.autograd.grad(attention, w)[0] / 2
        weights_of_others = ((-distances / sigma).exp() / sigma * alpha).sum(1) - alpha / sigma
        u = (w - alpha * shift / weights_of_others.clamp(min=1)[:, None]).detach()
        for core, row in zip(cores.values(), u, strict=True):
            torch.nn.utils.vector_to_parameters(row, core)
    assert_same(run, hand)
    assert (weights_of_others > 1).all() == (alpha > 1)


def least_over_supports(p: np.ndarray) -> np.ndarray:
    """The weights that minimise αᵀPα on the simplex: the best of all sets of positive weights."""
    best = np.zeros(len(p))
    value = np.inf
    for count in range(1, len(p) + 1):
        for support in map(list, combinations(range(len(p)), count)):
            solution = np.linalg.solve(p[np.ix_(support, support)], np.ones(count))
            solution /= solution.sum()
            least = solution @ p[np.ix_(support, support)] @ solution
            if (solution >= 0).all() and least < value:
                value = least
                best = np.zeros(len(p))
                best[support] = solution
    return best


def feature_statistics(client: nn.Module, rows: Rows) -> tuple[np.ndarray, float]:
    """h and V, label by label as in the authors' program."""
    z = features(client, rows.x).detach().double()
    h = np.zeros((4, z.shape[1]))
    v = 0.0
    for label in rows.y.unique().tolist():
        member = z[rows.y == label]
        share = len(member) / len(z)
        h[label] = share * member.mean(0).numpy()
        v += share * torch.trace(member.T @ member).item() / len(member) - (h[label] ** 2).sum()
    return h, v / len(z)


def test_fedpac_combines_heads_by_the_features_received(tmp_path: Path) -> None:
    fedpac = partial(FedPAC, strength=3.0)
    run = run_of(tmp_path, fedpac, "both", federated=["*"], rule=FedPACMean(), every={"epochs": 2})
    hand, rows = start_of(run)
    run.fit(quiet=True)
    total = sum(len(rows[name].y) for name in hand)
    prototypes: dict[int, Tensor] = {}
    for _ in range(ROUNDS // 2):
        h, v = zip(
            *(feature_statistics(client, rows[name]) for name, client in hand.items()), strict=True
        )
        for name, client in hand.items():
            x = rows[name].x
            y = rows[name].y
            descend(cross_entropy(client(x), y), list(client.head.parameters()))
            z = features(client, x)
            pulls = [
                (z[row] - prototypes[label]).square().mean()
                for row, label in enumerate(y.tolist())
                if prototypes
            ]
            loss = cross_entropy(client.head(z), y) + 3.0 * sum(pulls) / len(y)
            descend(loss, [*client.encoder.parameters(), *client.core.parameters()])
        every = torch.cat(
            [features(client, rows[name].x) for name, client in hand.items()]
        ).detach()
        labels = torch.cat([rows[name].y for name in hand])
        prototypes = {label: every[labels == label].mean(0) for label in labels.unique().tolist()}
        sent = {name: deepcopy(dict(client.named_parameters())) for name, client in hand.items()}
        for place, client in enumerate(hand.values()):
            p = [[((h[place] - first) * (h[place] - second)).sum() for second in h] for first in h]
            alpha = least_over_supports(np.array(p) + np.diag(v))
            assert (alpha > 1e-3).sum() > 1
            for key, parameter in client.named_parameters():
                weights_of = (
                    alpha
                    if key.startswith("head.")
                    else [len(rows[name].y) / total for name in hand]
                )
                parts = zip(weights_of, sent.values(), strict=True)
                parameter.data = sum(float(weight) * state[key].detach() for weight, state in parts)
    assert_same(run, hand)

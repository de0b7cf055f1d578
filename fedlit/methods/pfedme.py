"""pFedMe (T. Dinh, Tran and Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes",
arXiv:2006.08848).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedlit.data.loader import Batch
from fedlit.errors import ConfigError, expect
from fedlit.methods.bases import TwoCopies, pull
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec


class PFedMe(TwoCopies):
    """A client with a personal model θ that stays near a federated w, while w follows θ. It
    predicts by θ, the ``personal`` copy.

    On each batch θ takes K steps of the client's optimizer on f(θ; batch) + λ/2 · ‖θ − w‖², from
    its last value; then w ← w − η λ (w − θ), a gradient step on the Moreau envelope (Algorithm 1).
    Only federated tensors are pulled, and only they follow. For all other tensors, and for
    normalisation statistics, the personal copy alone is used.

    NOTE[DIFF]: β, the paper's mixing of the mean with the server's previous w, is a rule at the
    server; it is not ``exchange.rate``, which mixes with a client's own w. Without such a rule β is
    1, as in most of the paper's runs.

    NOTE[DIFF]: all clients take part in a round unless ``exchange.participation`` says otherwise,
    and θ is kept between rounds; the paper draws a subset, and does not say where θ begins. The
    authors' program sets θ to w at the start of each round.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        strength: λ, above 0.
        inner_steps: K, at least 1.
        eta: η, above 0; η λ is at most 1, because with more w would step past θ.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: a value is out of range, or ``model.accumulate`` is above 1.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> client = PFedMe(spec, MLP, inner_steps=3)
        >>> client.inner_steps, client(torch.zeros(4, 2)).shape
        (3, torch.Size([4, 1]))
    """

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        strength: float = 15.0,
        inner_steps: int = 5,
        eta: float = 0.005,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(inner_steps >= 1, "PFedMe: inner_steps", "at least 1", inner_steps)
        allowed = strength > 0 and eta > 0 and eta * strength <= 1
        expected = "numbers above 0 with a product of at most 1"
        expect(allowed, "PFedMe: strength, eta", expected, (strength, eta))
        self.strength = strength
        self.inner_steps = inner_steps
        self.eta = eta
        self.automatic_optimization = False
        for name, parameter in self.named_parameters():  # w is stepped by hand.
            parameter.requires_grad_(name.startswith("personal."))

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse accumulated batches, because each takes several steps, and warn of steps that are
        too long.
        """
        if self.accumulate > 1:
            raise ConfigError(
                f"client {self.spec.name!r}: PFedMe takes {self.inner_steps} steps on each batch "
                f"and expected model.accumulate: 1, found {self.accumulate}; set data.batch_size "
                "for larger ones"
            )
        probe = self.optimizer_factory([torch.nn.Parameter(torch.zeros(1))])
        remarks = super().on_plan(every)
        step_size = float(probe.param_groups[0]["lr"]) * self.strength
        if isinstance(probe, torch.optim.SGD) and step_size > 1:
            remarks.append(
                f"PFedMe steps past w: learning rate × strength is {step_size:g}, and above 2 it "
                "diverges; lower one of them"
            )
        return remarks

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return (θ, w) for each federated name."""
        w = self._federated.of(dict(self.named_parameters()))
        return [
            (theta, w[name])
            for name, theta in self._federated.of(dict(self.personal.named_parameters())).items()
        ]

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return f(θ) + λ/2 · ‖θ − w‖², a function of θ."""
        return pull(self.personal_objective(x, y), self.strength, self.pairs())

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Take K steps of θ and one of w."""
        for _ in range(self.inner_steps):
            loss = self.objective(batch.x, batch.y)
            self.descend(loss, self._optimizers, [self.clipped_apart()[1]])
        with torch.no_grad():
            for theta, w in self.pairs():
                w.lerp_(theta, self.eta * self.strength)
        return loss.detach()

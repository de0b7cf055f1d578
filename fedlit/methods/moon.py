"""MOON (Li, He and Song 2021, "Model-Contrastive Federated Learning", arXiv:2103.16257)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cosine_similarity, softplus

from fedlit.errors import ConfigError, expect
from fedlit.methods.bases import Anchored, by_name, zero_buffers
from fedlit.nn.network import NetworkFactory
from fedlit.seeding import repeat_draws
from fedlit.sharing import State
from fedlit.spec import ClientSpec

PARTS = ("encoder", "core")


class MOON(Anchored):
    """Draws the representation of rows towards that of the network as it was received, and away
    from that of the client's own network as it was last sent.

    The loss has the term μ · ℓ, with ℓ = −log( e^{s(z, z_glob)/τ} / (e^{s(z, z_glob)/τ} + e^{s(z,
    z_prev)/τ}) ) and s the cosine similarity; z is the core's output. Both other networks see the
    same dropout and the batch's own statistics of normalisation, and leave the running ones as they
    are. Until the client has sent for the first time z_prev is z_glob, so that ℓ has no gradient.
    With μ = 0 the client is a plain one, bit for bit.

    NOTE[DIFF]: the paper adds a projection head, whose output is z. Where only a part is federated,
    z_glob and z_prev take the client's own encoder as it was at the exchange. Clients weigh alike;
    the paper weighs them by rows (``exchange.rule: {class_path: fedlit.Mean, init_args: {weights:
    rows}}``).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        mu: μ, at least 0.
        temperature: τ, above 0.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: a value is out of range, or nothing of the encoder and the core is federated.

    Example:
        >>> from fedlit import MLP
        >>> MOON(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP, mu=0.1).mu
        0.1
    """

    adapts = False
    private = ("received", "previous")

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        mu: float = 1.0,
        temperature: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(mu >= 0, "MOON: mu", "at least 0", mu)
        expect(temperature > 0, "MOON: temperature", "a number above 0", temperature)
        self.mu = mu
        self.temperature = temperature
        if mu:
            self.anchor(name for name, _ in self.named_parameters() if name.startswith(PARTS))
            self.previous = zero_buffers(by_name(self.received))

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse settings under which a representation would be contrasted with itself."""
        compared = [name for name in self.federated if name.startswith(PARTS)]
        if self.mu and self.federated and not compared:
            raise ConfigError(
                f"client {self.spec.name!r}: MOON compares representations, and expected tensors "
                "of the encoder or the core in exchange.federated, found none; set it to [core], "
                "or mu to 0"
            )
        return super().on_plan(every)

    def on_receive(self, received: State) -> None:
        """Remember the network as it is now. Until one was sent, it also stands for that one."""
        if not self.mu:
            return
        self._keep(self.received)
        super().on_receive(received)
        if not self.state.get("sent"):
            self._keep(self.previous)

    def on_send(self, steps: int) -> None:
        """Remember the network as it is sent."""
        if self.mu:
            self._keep(self.previous)
            self.state["sent"] = True

    @torch.no_grad()
    def _keep(self, module: torch.nn.Module) -> None:
        parameters = dict(self.named_parameters())
        for name, value in by_name(module).items():
            value.copy_(parameters[name])

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss with the contrastive term."""
        if not self.mu or self.fine_tuning:  # A private model is not pulled towards the others.
            return super().objective(x, y)
        again = repeat_draws(self.device)
        core = self.core(self.encoder(x))
        loss = self.loss(self.head(core), y)
        z = core.flatten(1)
        with torch.no_grad():
            again()
            received = self.representation(x, by_name(self.received))
            again()
            previous = self.representation(x, by_name(self.previous))
        return loss + self.mu * self.contrast(z, received, previous)

    def representation(self, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the core's output, (rows, width), computed with other parameters and with copies
        of the buffers.
        """
        tensors = {name: value.clone() for name, value in self.named_buffers()}
        tensors.update(parameters)
        for part in PARTS:
            prefix = f"{part}."
            part_tensors = {
                name.removeprefix(prefix): value
                for name, value in tensors.items()
                if name.startswith(prefix)
            }
            x = functional_call(getattr(self, part), part_tensors, (x,))
        return x.flatten(1)

    def contrast(self, z: Tensor, received: Tensor, previous: Tensor) -> Tensor:
        """Return ℓ, the mean over rows, given representations of shape (rows, width)."""
        nearer = cosine_similarity(z, received, dim=1) - cosine_similarity(z, previous, dim=1)
        return softplus(-nearer / self.temperature).mean()

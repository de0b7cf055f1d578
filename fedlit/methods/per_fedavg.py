"""Per-FedAvg (Fallah, Mokhtari and Ozdaglar 2020, "Personalized Federated Learning with Theoretical
Guarantees: A Model-Agnostic Meta-Learning Approach", arXiv:2002.07948).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError, RunError, expect
from fedlit.methods.bases import CHUNK, TwoCopies
from fedlit.nn.network import NetworkFactory
from fedlit.seeding import repeat_draws
from fedlit.sharing import State
from fedlit.spec import ClientSpec


class PerFedAvg(TwoCopies):
    """Trains a start w from which one gradient step on a client's rows gives a good model, and
    predicts by this model.

    Each batch has parts D, D' (and D''). With w̃ = w − α ∇f(w; D), the client's optimizer descends
    along ∇f(w̃; D') (FO, first-order), or along ∇f(w̃; D') − α d (HF, Hessian-free), where d is the
    finite difference [∇f(w + δ g; D'') − ∇f(w − δ g; D'')] / 2δ for g = ∇f(w̃; D').

    Predictions are those of the ``personal`` copy: after each exchange it is w after ``steps``
    steps of size α on the mean loss over all the client's training rows, in evaluation mode. This
    takes a pass over all rows for each exchange and step, which is expensive under
    ``exchange.every: step``; the copy takes the memory of a second network. In the private last
    phase (``model.then``) the adapted model is trained further by its plain loss.

    NOTE[DIFF]: the paper adapts on a batch; here on all training rows, so that predictions depend
    on no draw. Private parameters, which the paper does not have, are meta-learnt and adapted like
    the others.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        alpha: α, above 0: the step size of the inner step and of the adaptation.
        hessian: ``none`` (FO), or ``finite_difference`` (HF).
        delta: δ, above 0.
        steps: the number of steps of the adaptation, at least 1.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: a value is out of range, or nothing is federated.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> client = PerFedAvg(spec, MLP, hessian="finite_difference")
        >>> client.parts, client(torch.zeros(4, 2)).shape
        (3, torch.Size([4, 1]))
    """

    adapts = False

    weighs_rows = False

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        alpha: float = 0.01,
        hessian: Literal["none", "finite_difference"] = "none",
        delta: float = 0.001,
        steps: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(alpha > 0, "PerFedAvg: alpha", "a number above 0", alpha)
        expect(delta > 0, "PerFedAvg: delta", "a number above 0", delta)
        expect(steps >= 1, "PerFedAvg: steps", "at least 1", steps)
        self.alpha = alpha
        self.delta = delta
        self.steps = steps
        self.parts = 2 if hessian == "none" else 3
        self.automatic_optimization = False
        self.personal.requires_grad_(False)  # The copy is set by hand.
        self._rows: Rows | None = None

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse settings under which nothing would be adapted, and warn of costly ones."""
        if not self.federated:
            raise ConfigError(
                f"client {self.spec.name!r}: PerFedAvg adapts the result of an exchange, and "
                "expected federated parameters, found exchange.federated: []; set it to "
                '["*"] or a part of the network'
            )
        often = every == "step" or (isinstance(every, Mapping) and every.get("steps", 10) < 10)
        if not often:
            return []
        return [f"PerFedAvg passes over all training rows after each exchange, {every}"]

    def on_rows(self, rows: Rows) -> None:
        """Keep the training rows, without a copy."""
        self._rows = rows

    def on_receive(self, received: State) -> None:
        """Adapt the personal copy to the client's rows."""
        self._adapt()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Take a step along the meta-gradient; in the private last phase, along the gradient of the
        loss.
        """
        if self.fine_tuning:
            loss = along = self.loss(FederatedClient.forward(self, batch.x), batch.y)
        else:
            loss, gradient = self.meta_gradient(batch)
            # The gradient of ⟨w, g⟩ is g, the meta-gradient.
            products = [(w * g).sum() for w, g in zip(self.trained, gradient, strict=True)]
            along = torch.stack(products).sum()
        self.descend(along, self._optimizers, [self.clipped_apart()[0]])
        if self.fine_tuning:
            self._reset_personal()
        return loss.detach()

    @property
    def trained(self) -> list[Tensor]:
        """The tensors of w that are trained."""
        return [value for value in self.parameters() if value.requires_grad]

    def meta_gradient(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss at w̃ on D', and the direction that the optimizer descends along.
        Afterwards w is as it was. Only the first pass counts in statistics of normalisation.
        """
        if len(batch.y) < self.parts:
            raise self._too_few("a row", f"a batch of {len(batch.y)}")
        x_parts = batch.x.tensor_split(self.parts)
        y_parts = batch.y.tensor_split(self.parts)
        parts = [Batch(x, y) for x, y in zip(x_parts, y_parts, strict=True)]
        w = [value.detach().clone() for value in self.trained]
        _, first = self._gradient(parts[0], w)
        buffers = [(value, value.clone()) for value in self.buffers()]
        loss, gradient = self._gradient(parts[1], torch._foreach_sub(w, first, alpha=self.alpha))
        if self.parts == 3:
            again = repeat_draws(self.device)
            _, above = self._gradient(parts[2], torch._foreach_add(w, gradient, alpha=self.delta))
            again()
            _, below = self._gradient(parts[2], torch._foreach_sub(w, gradient, alpha=self.delta))
            second = torch._foreach_sub(above, below)
            gradient = torch._foreach_sub(gradient, second, alpha=self.alpha / (2 * self.delta))
        with torch.no_grad():
            torch._foreach_copy_(self.trained, w)
        for buffer, before in buffers:
            buffer.copy_(before)
        return loss, gradient

    def _too_few(self, needed: str, rows: str) -> RunError:
        """Return the error if a part of a batch has too few rows."""
        return RunError(
            f"client {self.spec.name!r}: PerFedAvg expected {needed} in each of the {self.parts} "
            f"parts of a batch, found {rows}; set data.batch_size higher, or data.batches lower"
        )

    def _gradient(
        self, rows: Batch, at: list[Tensor] | tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Set w to some values, and return the loss and its gradient there."""
        with torch.no_grad():
            torch._foreach_copy_(self.trained, at)
        if torch.is_autocast_enabled(self.device.type):
            torch.clear_autocast_cache()  # The cache holds the earlier weights.
        try:
            outputs = FederatedClient.forward(self, rows.x)
        except ValueError as error:  # Batch normalisation cannot train on a single row.
            if len(rows.y) > 1:
                raise
            raise self._too_few("2 rows, as its network asks,", "a part of 1") from error
        loss = self.loss(outputs, rows.y)
        gradient = torch.autograd.grad(
            loss, self.trained, allow_unused=True, materialize_grads=True
        )
        return loss, gradient

    @torch.enable_grad()
    def _adapt(self) -> None:
        """Set the personal copy to w after some steps on all rows."""
        self._reset_personal()
        assert self._rows is not None
        training = self.personal.training
        self.personal.eval()
        for _ in range(self.steps):
            point = {
                name: value.detach().clone().requires_grad_()
                for name, value in self.personal.named_parameters()
            }
            for x, y in zip(self._rows.x.split(CHUNK), self._rows.y.split(CHUNK), strict=True):
                outputs = functional_call(self.personal, point, (x.to(self.device),))
                (self.loss(outputs, y.to(self.device)) * (len(y) / len(self._rows))).backward()
            for name, value in self.personal.named_parameters():
                if (gradient := point[name].grad) is not None:
                    value.copy_(point[name].detach().sub(gradient, alpha=self.alpha))
        self.personal.train(training)

    def _copies(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each tensor of w with that of the personal copy."""
        state = self.state_dict(keep_vars=True)
        for name, personal in self.personal.state_dict(keep_vars=True).items():
            yield state[name], personal

    @torch.no_grad()
    def _reset_personal(self) -> None:
        """Set the personal copy to w."""
        for w, personal in self._copies():
            personal.copy_(w)

    @torch.no_grad()
    def on_fine_tune_start(self) -> None:
        """Continue from the adapted model."""
        for w, personal in self._copies():
            w.copy_(personal)

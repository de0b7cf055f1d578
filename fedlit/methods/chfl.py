"""CHFL (Mori, Teranishi and Furukawa 2022, "Continual Horizontal Federated Learning for
Heterogeneous Data", arXiv:2203.02108).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError, expect
from fedlit.nn.mlp import ACTIVATIONS
from fedlit.spec import ClientSpec, own_share


class Column(nn.Module):
    """A fully connected column of a progressive network (Rusu et al. 2016, arXiv:1606.04671), which
    returns the outputs of all layers, so that another column can receive them: z^(i+1) = a(W^(i+1)
    z^(i) + b^(i+1) + s^(i+1)) for the hidden layers, and z^(L) = W^(L) z^(L−1) + b^(L) + s^(L).
    Here s^(i) is what another column adds to layer i; the first layer receives nothing.

    Args:
        num_features: the width of the input z^(0).
        num_outputs: the width of the output z^(L).
        hidden: the widths of the hidden layers, at least one.
        activation: the activation a: ``relu``, ``selu`` or ``tanh``.

    Shape:
        - x: (n, num_features) float32
        - side: s^(2) … s^(L), (n, width of the layer) each; zeros if left out
        - output: z^(0) … z^(L), (n, width of the layer) each

    Example:
        >>> import torch
        >>> [tuple(z.shape) for z in Column(3, 2, [8, 4])(torch.zeros(5, 3))]
        [(5, 3), (5, 8), (5, 4), (5, 2)]
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        hidden: Sequence[int],
        activation: Literal["relu", "selu", "tanh"] = "relu",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise([num_features, *hidden]))
        self.head = nn.Linear(hidden[-1], num_outputs)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor, side: Sequence[Tensor] = ()) -> list[Tensor]:
        """Return the outputs of all layers, the input first."""
        values = [x]
        for position, layer in enumerate([*self.layers, self.head]):
            value = layer(values[-1])
            if side and position:
                value = value + side[position - 1]
            values.append(value if layer is self.head else self.activation(value))
        return values


class CHFL(FederatedClient):
    """Two columns of L layers: θ_c takes the inputs that clients have in common and is federated;
    θ_u takes the inputs that only the client has, stays private, and receives the outputs of θ_c's
    hidden layers through lateral matrices U^(2) … U^(L).

    z_u^(1) = a(W_u^(1) x_u + b_u^(1)); z_u^(i+1) = a(W_u^(i+1) z_u^(i) + b_u^(i+1) + μ U^(i+1)
    z_c^(i)) for 1 ≤ i ≤ L − 1, without a in the output layer (Eq. 6); the prediction is σ(z_c^(L) +
    z_u^(L)) (Eq. 7). On each batch (Algorithm 2) θ_c takes a step on its own loss; then, with θ_c
    held fixed, θ_u and U take one on the loss of the prediction. So θ_c is after each step, bit for
    bit, what it would be without the client's own columns. (How many steps there are may depend on
    the prediction, where early stopping or a plateau schedule watch its score.)

    ``data.common`` determines which columns clients have in common. There may be several groups of
    clients that share columns: a client then has a common column of layers for each of its groups,
    and z_c^(L) is their mean. A client in no group has θ_u alone, and is Local; a client without
    columns of its own has θ_c alone.

    The federated names are ``common.<group>.…``; if clients have different classes,
    ``common.*.head`` has to stay private (``exchange.federated: [common, "!common.*.head"]``).

    NOTE[DIFF]: Eq. 6 read literally applies a to the output layer, too. Here z_u^(L) is linear, as
    z_c^(L) is: softmax takes logits, and with ReLU θ_u could only raise them.

    NOTE[DIFF]: θ_u and U take one step together. Algorithm 2 lists them in two lines (15 and 16),
    of which the second could be read as using the θ_u that the first has just changed.

    NOTE[DIFF]: several groups are an addition; the contributions of their lateral matrices are
    added up.

    The paper does not state which output of θ_c the concatenation takes in, the activation, the
    learning rate, the values of μ, the number of rounds or when to stop.

    Args:
        spec: the client's description.
        hidden: the widths of the hidden layers of both columns.
        activation: the activation a: ``relu``, ``selu`` or ``tanh``.
        mu: μ in [0, 1]: one value for all clients, or values by client name or pattern; the best
            one depends on the client.
        unique: how the inputs that only the client has are used: by ``lateral`` matrices; by
            ``concatenation`` (the paper's simple method: θ_u alone predicts, from θ_c's
            probabilities and these inputs); or not at all (``none``: FedAvg on the common columns).
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: it is not known which columns are common, μ is not a share, or, with ``unique:
            none``, the client is in no group.

    Example:
        >>> common = {"shared": ("age", "sex")}
        >>> spec = ClientSpec("cleveland", ("age", "chol", "sex"), (0, 1), {}, (), common=common)
        >>> client = CHFL(spec, hidden=[8, 4])
        >>> client.spec.unique, client(torch.zeros(5, 3)).shape
        (('chol',), torch.Size([5, 1]))
    """

    private = ("unique", "lateral")

    def __init__(
        self,
        spec: ClientSpec,
        hidden: Sequence[int] = (512, 256, 128),
        activation: Literal["relu", "selu", "tanh"] = "relu",
        mu: float | dict[str, float] = 0.5,
        unique: Literal["lateral", "concatenation", "none"] = "lateral",
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, None, **kwargs)
        if spec.common is None:
            raise ConfigError(
                "CHFL: expected to know which columns clients have in common, found that nothing "
                "says so; set data.common: all, or list them (with data.pool: true there is one "
                "client, and nothing is common)"
            )
        if unique == "none" and not spec.common:
            raise ConfigError(
                f"client {spec.name!r}: expected a common column, found that it is in no group and "
                "unique is none, so that it has no network; leave it out, or name columns in "
                "data.common that it has"
            )
        expect(bool(hidden), "CHFL: hidden", "the width of at least one hidden layer", hidden)
        self.automatic_optimization = False
        self.mu = own_share(mu, spec.name, "mu")
        self.use_of_unique = unique
        self.common = nn.ModuleDict()
        self.lateral = nn.ModuleDict()
        unique_inputs = () if unique == "none" else spec.unique
        outputs = spec.num_outputs
        for group, names in spec.common.items():
            self.common[group] = Column(len(names), outputs, hidden, activation)
            self._remember(group, names)
            if unique_inputs and unique == "lateral":
                layers = (nn.Linear(*pair, bias=False) for pair in pairwise([*hidden, outputs]))
                self.lateral[group] = nn.ModuleList(layers)
        self.unique: Column | None = None
        if unique_inputs:
            self._remember("", unique_inputs)
            width = len(unique_inputs)
            if unique == "concatenation":
                width += spec.task.input_width * len(spec.common)
            self.unique = Column(width, outputs, hidden, activation)

    def _remember(self, group: str, names: Sequence[str]) -> None:
        """Remember the positions of a group's inputs. The empty name is for inputs that only this
        client has.
        """
        positions = torch.tensor([self.spec.features.index(name) for name in names])
        self.register_buffer(f"_inputs_{group}", positions, persistent=False)

    def _inputs(self, group: str, x: Tensor) -> Tensor:
        return x[:, self.get_buffer(f"_inputs_{group}")]

    def common_values(self, x: Tensor) -> dict[str, list[Tensor]]:
        """Return the outputs of the layers of each common column, by group: z_c^(0) … z_c^(L)."""
        return {group: column(self._inputs(group, x)) for group, column in self.common.items()}

    def joint_logits(self, x: Tensor, common: Mapping[str, Sequence[Tensor]]) -> Tensor:
        """Return the logits of the prediction, given rows and the outputs of the common columns for
        them.

        Shape:
            - x: (n, d) float32
            - output: (n, 1) where there are two classes, else (n, classes)
        """
        last = [values[-1] for values in common.values()]
        if self.unique is None:
            return _mean(last)
        unique = self._inputs("", x)
        if self.use_of_unique == "concatenation":
            inputs = [unique, *map(self.spec.task.as_input, last)]
            logits: Tensor = self.unique(torch.cat(inputs, 1))[-1]
            return logits
        sides = [self._lateral_values(group, values) for group, values in common.items()]
        side = [self.mu * sum(parts[1:], start=parts[0]) for parts in zip(*sides, strict=True)]
        logits = self.unique(unique, side)[-1]
        return logits + _mean(last) if last else logits

    def _lateral_values(self, group: str, values: Sequence[Tensor]) -> list[Tensor]:
        """Return U^(i+1) z_c^(i) for each hidden layer of a group's common column."""
        layers = self.lateral[group].children()
        return [layer(value) for layer, value in zip(layers, values[1:-1], strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the prediction."""
        return self.joint_logits(x, self.common_values(x))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Step θ_c, then θ_u and U with θ_c held fixed, and return the loss of the prediction
        (Algorithm 2).
        """
        steppers = list(self._optimizers)
        clipped = self.clipped_apart() if self.gradient_clip_val else []
        if self.common:
            values = self.common_values(batch.x)
            # Columns of different groups have no parameter in common, so their losses can be added.
            losses = torch.stack([self.loss(layers[-1], batch.y) for layers in values.values()])
            self.descend(losses.sum(), [steppers.pop(0)], clipped[: len(self.common)])
            common_loss = losses.mean().detach()
            self.log("common_loss", common_loss)
        if self.unique is None:
            return common_loss
        with torch.no_grad():
            fixed = self.common_values(batch.x)
        loss = self.loss(self.joint_logits(batch.x, fixed), batch.y)
        self.descend(loss, steppers, clipped[len(self.common) :])
        return loss.detach()

    def clipped_apart(self) -> list[list[str]]:
        """Return the parameters of each common column, as they would be clipped without the private
        part, and then those of this part.
        """
        names = [name for name, _ in self.named_parameters()]
        prefixes = [*((f"common.{group}.",) for group in self.common), self.private]
        parts = []
        for prefix in prefixes:
            parts.append([name for name in names if name.startswith(prefix)])
        return parts

    def configure_optimizers(self) -> Any:
        """Return the configured optimizer and schedule twice: for the common columns, and for the
        private part.
        """
        common = list(self.common.parameters())
        private = list(self.lateral.parameters())
        if self.unique is not None:
            private += self.unique.parameters()
        return [self.optimizer_of(part) for part in (common, private) if part]


def _mean(logits: Sequence[Tensor]) -> Tensor:
    return logits[0] if len(logits) == 1 else torch.stack(list(logits)).mean(0)

"""iFedAvg (Roschewitz, Hartley, Corinzia and Jaggi 2021, "iFedAvg: Interpretable
Data-Interoperability for Federated Learning", arXiv:2107.06580).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.errors import expect
from fedlit.explain import ALL
from fedlit.nn.blocks import Affine
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec

Parts = Literal["both", "weight", "bias", "none"]
OutputParts = Literal["both", "weight", "bias", "scalar", "none"]


class IFedAvg(FederatedClient):
    """f = φ_out ∘ network ∘ φ_in, with private affine layers φ(x) = w ⊙ (x + b) that start as the
    identity (Section 2.1, Eq. 1).

    φ_in corrects the client's columns, φ_out its outputs. φ_out is off unless ``outputs`` turns it
    on, as in the paper's main results (Section 4); it is what reveals flipped labels (A.4). The
    network between them may be any, Global Layers included, and the exchange determines which part
    of it is federated (in the paper everything but φ). The user can read w and b (Section 5.2,
    ``fedlit explain``).

    NOTE[DIFF]: the paper standardises each client's columns by the client's own rows
    (``data.scaling: client``, the default here too). The studies of faults have ``pooled``: one
    mean and variance for all clients, so that an offset or a unit is still in the rows, and φ_in
    has to find it. NOTE[DIFF]: a task of two classes has one output, the paper's networks have two
    (Table 5). NOTE[DIFF]: rows count alike in the loss unless ``class_weights`` is ``balanced``.
    The paper weighs classes equally for all methods that it compares (Section 4).

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        inputs: what φ_in has: scales and shifts (``both``), one of them, or ``none``.
        outputs: the same for φ_out, or one scale for all outputs (``scalar``, φ_out(z) = w · z; A.4
            and the right half of Fig. 19). ``none`` is the paper's main setting. With one output,
            ``scalar`` is ``weight``.
        lr_factor: the learning rate of φ, as a multiple of the network's; 1 in the paper. Weight
            decay, which pulls towards 0 and not towards the identity, never applies to φ.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Example:
        >>> import torch
        >>> from fedlit import MLP
        >>> client = IFedAvg(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP)
        >>> names = [name for name, _ in client.named_parameters()]
        >>> [name for name in names if name.startswith(client.private)]
        ['affine_in.weight', 'affine_in.bias']
    """

    private = ("affine_in", "affine_out")
    stackable = True

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        inputs: Parts = "both",
        outputs: OutputParts = "none",
        lr_factor: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        expect(lr_factor > 0, "IFedAvg: lr_factor", "a number above 0", lr_factor)
        self.affine_in = _affine(spec.num_features, inputs)
        if outputs == "scalar":
            self.affine_out = _affine(1, "weight")
        else:
            self.affine_out = _affine(spec.num_outputs, outputs)
        self.lr_factor = lr_factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; see :meth:`fedlit.FederatedClient.forward`."""
        logits: Tensor = self.affine_out(super().forward(self.affine_in(x)))
        return logits

    def configure_optimizers(self) -> Any:
        """Return the configured optimizer with two groups: the network, and φ with its own learning
        rate.
        """
        network = [
            value for name, value in self.named_parameters() if not name.startswith(self.private)
        ]
        affine = [value for name, value in self.named_parameters() if name.startswith(self.private)]
        if not affine:
            return super().configure_optimizers()
        groups = [{"params": network}, {"params": affine, "weight_decay": 0.0}]
        return self.optimizer_of(groups, lr_factors=[1.0, self.lr_factor])

    @property
    def corrections(self) -> Mapping[str, Mapping[str, float]]:
        """How φ changes each column that the client has: part (``input scale``, ``input shift``,
        ``output scale``, ``output shift``) → name of the input, or of the class that the output is
        for → value.
        """
        inputs = _corrections(self.affine_in, "input", self.spec.features)
        for values in inputs.values():
            # An absent input is 0 in every row, so its scale and shift correct nothing.
            for name in self.spec.absent:
                values.pop(name, None)
        return inputs | _corrections(self.affine_out, "output", self.spec.task.output_names)


def _corrections(layer: Affine, side: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the scales and the shifts of an affine layer that it has, by name."""
    corrections = {}
    for kind, parameter in (("scale", layer.weight), ("shift", layer.bias)):
        if parameter is not None:
            values = parameter.detach().cpu().tolist()
            keys = names if len(values) == len(names) else [ALL]
            corrections[f"{side} {kind}"] = dict(zip(keys, values, strict=True))
    return corrections


def _affine(size: int, parts: Parts) -> Affine:
    return Affine(size, weight=parts in ("both", "weight"), bias=parts in ("both", "bias"))

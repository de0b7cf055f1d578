"""A network of stacked bidirectional LSTMs in three parts, for sequences whose positions are
columns.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.network import Network


class _Symbols(nn.Embedding):
    """A vector for each symbol, found by its code; zero if there is no symbol (code −1). Codes are
    rounded, so that rules which draw inputs at random draw symbols.
    """

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__(symbols + 1, width, padding_idx=0)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, positions) to (n, positions, width)."""
        row = (x.round().long() + 1).clamp(0, self.num_embeddings - 1)
        # Noise on federated tensors, or a rule, may change the first row, so it is masked as well.
        return super().forward(row) * (row > 0).unsqueeze(-1).to(self.weight.dtype)


class _Direction(nn.LSTM):
    """An LSTM of one layer and direction that returns its outputs alone, (n, positions, hidden)."""

    def reset_parameters(self) -> None:
        """Draw from PyTorch's distribution. Tensors that have the inputs' width are drawn last, so
        that all others start equal at clients whose inputs have another width.
        """
        bound = self.hidden_size**-0.5
        for name in sorted(self._flat_weights_names, key=lambda name: name.startswith("weight_ih")):
            nn.init.uniform_(getattr(self, name), -bound, bound)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return the outputs."""
        outputs: Tensor = super().forward(x)[0]
        return outputs


class _BiLSTM(nn.Module):
    """One bidirectional LSTM. A sequence ends at its last vector that is not zero. The vectors
    after it change nothing before it, and their outputs are zero.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forth = _Direction(inputs, hidden, batch_first=True)
        self.back = _Direction(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, positions, inputs) to (n, positions, 2 · hidden)."""
        position = torch.arange(x.shape[1], device=x.device)
        length = ((position + 1) * (x != 0).any(-1)).amax(1, keepdim=True)
        inside = position < length
        # Sequences are reversed within their length, so that padding is last in both directions.
        reversed_ = torch.where(inside, length - 1 - position, position).unsqueeze(-1)
        backwards = x.gather(1, reversed_.expand_as(x))
        # `functional_call` replaces the parameter by a plain tensor.
        weight = cast(Tensor, self.forth.weight_hh_l0)
        if is_batchedtensor(x) or is_batchedtensor(weight):
            forth, back = self._scan(torch.stack([x, backwards]))
        else:
            forth = self.forth(x)
            back = self.back(backwards)
        both = torch.cat([forth, back.gather(1, reversed_.expand_as(back))], -1)
        return both * inside.unsqueeze(-1).to(both.dtype)

    def _scan(self, x: Tensor) -> Tensor:
        """Compute both directions of (2, n, positions, inputs) at once, step by step, because
        PyTorch's LSTM does not support ``vmap``.
        """

        def both(name: str) -> Tensor:
            return torch.stack([getattr(self.forth, name), getattr(self.back, name)])

        bias = (both("bias_ih_l0") + both("bias_hh_l0"))[:, None]
        gates = torch.bmm(x.flatten(1, 2), both("weight_ih_l0").mT) + bias
        recurrent = both("weight_hh_l0").mT
        zeros = torch.zeros_like(recurrent[:, :1]).expand(-1, x.shape[1], -1)
        hidden = cell = zeros[..., : self.forth.hidden_size]
        outputs = []
        for from_input in gates.unflatten(1, x.shape[1:3]).unbind(2):
            from_hidden = torch.bmm(hidden, recurrent)
            input_gate, forget, value, output_gate = (from_input + from_hidden).chunk(4, -1)
            cell = forget.sigmoid() * cell + input_gate.sigmoid() * value.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs, 2)


class BiLSTM(Network):
    """Stacked bidirectional LSTMs that label each position of a sequence (Lucchetti et al. 2022,
    arXiv:2204.11017, use two). The encoder has a vector for each symbol, the core consists of the
    LSTMs, and the head is a linear layer at each position.

    Inputs are the codes 0, 1, … of symbols at the positions, −1 after a sequence has ended, as
    :class:`fedlit.Reads` and :class:`fedlit.Populations` give them. Positions after a sequence's
    end change nothing before it.

    NOTE[DIFF]: the paper does not state its widths. A vector for each base is learnt; the paper
    encodes reads by word2vec over words of five bases.

    Args:
        num_features: the number of positions.
        num_outputs: the number of positions times the number of labels.
        hidden: the width of each direction of each layer.
        layers: the number of layers that are stacked.
        width: the width of the vectors of symbols.
        dropout: the probability with which a number between two layers is set to zero in training.
        symbols: the number of different symbols; by default the five bases (A, C, G, N, T).

    Shape:
        - input: (rows, positions), float32
        - output: (rows, positions · labels), float32, the labels of a position side by side

    Raises:
        ValueError: there are not at least two outputs for each position, or a size is below 1.

    Example:
        >>> BiLSTM(150, 450, hidden=4)(torch.zeros(2, 150)).shape
        torch.Size([2, 450])
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        hidden: int = 32,
        layers: int = 2,
        width: int = 8,
        dropout: float = 0.0,
        symbols: int = 5,
    ) -> None:
        labels, rest = divmod(num_outputs, num_features)
        if rest or labels < 2 or min(hidden, layers, width, symbols) < 1:
            raise ValueError(
                f"expected at least two outputs for each of {num_features} positions, found "
                f"{num_outputs} in total, and hidden, layers, width and symbols of at least 1, "
                f"found {hidden, layers, width, symbols}; use a source of sequences, such as "
                "fedlit.Reads, with data.categories: codes"
            )
        core: list[nn.Module] = []
        core.append(_BiLSTM(width, hidden))
        for _ in range(layers - 1):
            if dropout:
                core.append(nn.Dropout(dropout))
            core.append(_BiLSTM(2 * hidden, hidden))
        super().__init__(
            encoder=_Symbols(symbols, width),
            core=nn.Sequential(*core),
            head=nn.Sequential(nn.Linear(2 * hidden, labels), nn.Flatten(-2)),
        )
        self.symbols = symbols

    def meet(self, inputs: Sequence[Input], labels: Sequence[str]) -> None:
        """Refuse inputs that are not codes of the same symbols, in the order of positions.

        Raises:
            ConfigError: an input is a number, or a code of other symbols.
        """
        first = inputs[0].values
        for column in inputs:
            if column.values != first or len(column.values) != self.symbols:
                kind = f"codes of {', '.join(column.values)}" if column.values else "a number"
                raise ConfigError(
                    f"BiLSTM: input {column.name}: expected the code of one of {self.symbols} "
                    f"symbols, the same at each position, found {kind}; take a source of "
                    "sequences (fedlit.Reads) with data.categories: codes, or say how many "
                    "symbols there are"
                )

"""The three parts of a client's network."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from fedlit.errors import ConfigError
from fedlit.inputs import Input


class Network(nn.Module):
    """Encoder (private input side), core (shared) and head (private output side), applied in this
    order.

    A subclass builds the three from the number of features and outputs. Their names are what
    patterns of federated tensors refer to: ``core.*`` is the core.

    A module may have an attribute ``axes``, which maps a tensor's name to (axis, a name for each
    position along it). The names are those of columns, values or classes, by which clients with
    different shapes find what they share. ``meet`` is the place to set it.

    Attributes:
        no_decay: patterns of parameters without weight decay (see :func:`fedlit.sharing.select`).
        reads_codes: whether categories enter as numbers, by their codes. Parameters of such a
            column may then only be averaged between clients where each code stands for the same
            category.

    Shape:
        - input: (rows, num_features), float32
        - output: logits, (rows, num_outputs) or, of an ensemble, (rows, members, num_outputs),
          float32
    """

    encoder: nn.Module
    core: nn.Module
    head: nn.Module
    no_decay: tuple[str, ...] = ()
    reads_codes: bool = True

    def __init__(self, encoder: nn.Module, core: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.core = core
        self.head = head

    def meet(self, inputs: Sequence[Input], labels: Sequence[str]) -> None:
        """Called once, before initial values are drawn. By default, it does nothing.

        Args:
            inputs: one description for each feature.
            labels: the label of each output, see :attr:`fedlit.spec.ClientSpec.output_labels`.
        """

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.core(self.encoder(x)))
        return logits


def name_axes(module: nn.Module, axes: Mapping[str, tuple[int, Sequence[str]]]) -> None:
    """Name the positions along an axis of a module's tensors (its ``axes``).

    Args:
        module: the module that has the tensors.
        axes: tensor's name → (axis, a name for each position along it).

    Raises:
        ConfigError: two positions have the same name.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> name_axes(layer, {"weight": (1, ["age", "sex"])})
        >>> layer.axes
        {'weight': (1, ('age', 'sex'))}
    """
    for _, names in axes.values():
        duplicates = [name for name, count in Counter(names).items() if count > 1]
        if duplicates:
            raise ConfigError(
                "expected different names of columns, values and classes, found "
                f"{duplicates[0]!r} twice; rename the column or the value"
            )
    named = {name: (axis, tuple(names)) for name, (axis, names) in axes.items()}
    module.axes = named  # type: ignore[assignment]


NetworkFactory = Callable[[int, int], Network]
"""Makes a network from (num_features, num_outputs)."""

"""Means of features by label, over the clients that have the label."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.rule import DOWN, Facts, Round, Update
from fedlit.exchange.rules.mean import Mean
from fedlit.sharing import State

PROTOTYPE = "prototype/"
"""The beginning of the name of a label's prototype; the label follows."""
ROWS = "rows/"
"""The beginning of the name of a label's number of rows."""


class PrototypeMean(Mean):
    """Every client receives the mean prototype of each label, weighted by the rows of the label,
    and the mean of what is federated, if anything is. Labels are matched by name.

    Example:
        >>> sent = Update({}, published={"prototype/ill": torch.ones(2), "rows/ill": torch.tensor(3.0)})
        >>> PrototypeMean()(Round(0, 0, {"north": sent}, {"north": ()}))
        {'north': {'down/prototype/ill': tensor([1., 1.])}}
    """

    sends = "the mean feature of each label"
    facts = Facts(by_questions=True, requires="FedProto")

    def __init__(self) -> None:
        super().__init__()
        self.needs = frozenset({"states"})  # what clients publish has weights of its own

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        prototypes = {
            f"{DOWN}{name}": value for name, value in mean_prototypes(round.updates).items()
        }
        return {
            client: {**state, **prototypes} for client, state in super().__call__(round).items()
        }


@torch.no_grad()
def mean_prototypes(updates: Mapping[str, Update]) -> dict[str, Tensor]:
    """Return Σ n_k C_k / Σ n_k for each label, by the name of its prototype, over the clients with
    rows of the label.

    Raises:
        RunError: prototypes of a label have different sizes.
    """
    sums: dict[str, Tensor] = {}
    rows: dict[str, Tensor] = {}
    for client, update in sorted(updates.items()):
        for name, prototype in update.published.items():
            count = update.published.get(name.replace(PROTOTYPE, ROWS, 1))
            if not name.startswith(PROTOTYPE) or count is None or not count > 0:
                continue
            sum_ = sums.get(name, torch.zeros_like(prototype))
            if sum_.shape != prototype.shape:
                raise RunError(
                    f"client {client!r}: expected a {name} of {len(sum_)} features, as other "
                    f"clients send, found {len(prototype)}; set model.client.network to one with "
                    "as many outputs of its core"
                )
            sums[name] = sum_ + count * prototype
            rows[name] = rows.get(name, torch.zeros_like(count)) + count
    return {name: sum_ / rows[name] for name, sum_ in sums.items()}

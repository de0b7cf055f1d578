"""What a site received, exchange by exchange."""

from pathlib import Path

from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.rule import DOWN
from fedlit.exchange.schedule import BEGIN
from fedlit.privacy.ledger import RECEIVED, prepare
from fedlit.sharing import State
from fedlit.store import Store


class Received:
    """What a site received, exchange by exchange, on disk. An update is the difference from it,
    also after a restart.

    Args:
        folder: the site's own folder.
        federation: the identity of the federation; what another federation sent is ignored.
        start: what the client starts from, which everybody knows, because the run's seed draws it.
    """

    def __init__(self, folder: Path, federation: str, start: State) -> None:
        prepare(folder)
        self.federation = federation
        self._since = f"{federation} since"
        self._store = Store(
            folder / RECEIVED, "go on from a backup of this folder, or ask for a new federation"
        )
        self._start = {name: tensor.detach().cpu().clone() for name, tensor in start.items()}

    def told(self, number: int) -> dict[str, Tensor]:
        """Return what the coordinator sent before an exchange; empty before the first.

        Raises:
            RunError: it is no longer known.
        """
        state: dict[str, Tensor] | None = self._store.get(self.federation, number - 1)
        if state is None and number > 0:
            raise RunError(
                f"exchange {number + 1}: expected {self._store.path} to have what this site "
                "received in the exchange before, found that it is gone; go on from a later "
                "checkpoint"
            )
        return state or {}

    def since(self, number: int) -> dict[str, int]:
        """Map the name of each tensor that was received before an exchange to the exchange that
        brought it.
        """
        since: dict[str, int] | None = self._store.get(self._since, number - 1)
        return since or {}

    def before(self, number: int) -> dict[str, Tensor]:
        """Return what the client last received before an exchange, name by name, or else what it
        started from.
        """
        return {**self._start, **self.told(number)}

    def put(self, number: int, received: State) -> None:
        """Record the result of an exchange, before the client uses it."""
        new_state = {
            name: value.detach().cpu()
            for name, value in received.items()
            if not name.startswith(DOWN)
        }
        earlier = [
            exchange for exchange in self._store.numbers(self.federation) if exchange < number
        ]
        before: State = {}
        since: dict[str, int] = {}
        if earlier:  # a site may have missed some
            before = self._store.get(self.federation, earlier[-1])
            since = self.since(earlier[-1] + 1)
        state = {**before, **new_state}
        since = {**since, **dict.fromkeys(new_state, number)}
        self._store.put({(self.federation, number): state, (self._since, number): since})

    def forget(self, number: int) -> None:
        """Delete what came before an exchange, because the site will not go back."""
        self._store.put(
            {}, drop=[(name, BEGIN, number - 1) for name in (self.federation, self._since)]
        )

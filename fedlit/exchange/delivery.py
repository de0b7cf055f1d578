"""How each client takes over its part of a round's outcome, and is told of it."""

from collections.abc import Collection
from typing import Literal

from fedlit.attacks import Attackers
from fedlit.client import FederatedClient
from fedlit.client.client import has_hook
from fedlit.client.hooks import hook_of
from fedlit.exchange.apply import Lending, apart, recover, write_back, write_back_all
from fedlit.exchange.checks import unchanged
from fedlit.exchange.columns import Updates
from fedlit.exchange.members import Members
from fedlit.exchange.outcome import Outcome
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import State, all_finite, named_tensors

OptimizerState = Literal["keep", "reset"]


class Delivery:
    """Gives clients what a round has for them.

    Args:
        rate: the share r that a client takes from what it receives.
        optimizer_state: whether clients keep the state of their optimizers (``keep``), or begin
            each round without one (``reset``).
        attackers: the attacking clients, which remember what they are told.

    Attributes:
        lending: the memory that idle clients share.
    """

    def __init__(self, rate: float, optimizer_state: OptimizerState, attackers: Attackers) -> None:
        self.lending = Lending()
        self._rate = rate
        self._optimizer_state = optimizer_state
        self._attackers = attackers

    def deliver(
        self,
        members: Members,
        honest: Updates,
        collected: Updates,
        outcome: Outcome,
        gone: Collection[str],
        number: int,
    ) -> None:
        """Let each client here take over its part of a round's outcome.

        Args:
            members: the federation.
            honest: the updates of clients here; their tensors are the clients' own.
            collected: what was sent instead, if some of them attack.
            outcome: the outcome of the round.
            gone: clients that were left out of earlier exchanges of this epoch, which is known only
                now.
            number: the number of the round.
        """
        gone = {*gone, *outcome.lost, *outcome.verdict.left_out}
        if outcome.void:
            finite = all_finite({name: update.state for name, update in collected.items()})
            gone |= {name for name, is_finite in finite.items() if not is_finite}
        rate = self._rate
        if outcome.void:
            rate = 1.0
        received = apart(outcome.received, honest)
        usual = {name: state for name, state in received.items() if name not in gone}
        write_back_all(honest.columns, usual, rate)
        for name, client in members.clients.items():
            state = received.get(name, {})
            if name in gone:
                self.start_again(members, name, state)
            elif name not in honest and rate != 1:
                write_back(client, state, rate)
            elif name not in honest:
                write_back(client, self.lending.lend(client, state), 1.0)
            self.tell(members, client, state, number)
            self.lending.check(name)
            client.steps_taken = 0
            if self._optimizer_state == "reset":
                for optimizer in client._optimizers:
                    optimizer.state.clear()

    def tell(
        self, members: Members, client: FederatedClient, received: State, number: int | str
    ) -> None:
        """Call the client's ``on_receive``. It must not change what it is given, because clients
        share tensors.
        """
        if has_hook(client, "on_receive"):
            self._call_on_receive(members, client, received, number)
        self._attackers.remember(client)

    def start_again(self, members: Members, name: str, received: State) -> None:
        """Let a client that was left out start from what it receives (see
        :func:`~fedlit.exchange.apply.recover`).
        """
        # It may sit out by now, and share the memory of what it received then.
        self.lending.return_to([name])
        client = members.clients[name]
        recover(client, named_tensors(members.fresh(client.spec)))
        write_back(client, received, 1.0)

    def _call_on_receive(
        self, members: Members, client: FederatedClient, received: State, number: int | str
    ) -> None:
        name = client.spec.name
        expected = (
            f"client {name!r}: expected {type(client).__name__}.on_receive to leave what it "
            "is given as it is"
        )
        seed = derive_seed(members.seed, "receive", name, number)
        with (
            unchanged(received.items(), expected),
            isolated_rng(seed, members.device),
            hook_of(client, "on_receive"),
        ):
            client.on_receive(received)

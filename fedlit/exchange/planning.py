"""What an exchange determines before training: what tensors stand for, and what the clients'
networks are like.
"""

from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.members import Members
from fedlit.exchange.transport import Transport
from fedlit.meanings import Described, Meaning, check_meanings, find_meanings
from fedlit.sharing import Sharing
from fedlit.spec import ClientSpec


def unknown_meanings(
    members: Members, sharing: Sharing, transport: Transport
) -> dict[str, list[str]]:
    """Return the tensors of each client for which it is not known what they stand for.

    Raises:
        ConfigError: tensors stand for different columns or labels at different clients.
    """
    clients = {
        name: Described(client, client.spec, sharing.names[name])
        for name, client in members.clients.items()
    }
    agreed = members.data.terms(known=False).features
    meanings_here = find_meanings(clients, members.fresh, agreed)
    # A client that federates nothing sends an empty mapping.
    sent: dict[str, dict[str, Meaning]] = {name: {} for name in clients}
    for name, meanings in meanings_here.meanings.items():
        for tensor, meaning in meanings.items():
            sent[name][tensor] = transport.disguise(meaning)
    check_meanings(transport.share("meaning", sent))
    return meanings_here.unknown


class Networks:
    """The clients' networks as they are before training, for rules that need them.

    Args:
        members: the clients.
        sharing: which of their tensors are federated.
    """

    def __init__(self, members: Members, sharing: Sharing) -> None:
        self._members = members
        self._sharing = sharing
        self._specs = {name: client.spec for name, client in members.clients.items()}

    def share(self, transport: Transport) -> None:
        """Let all processes know what the networks of all clients are like."""
        sizes = {name: [spec.num_features, spec.num_outputs] for name, spec in self._specs.items()}
        transport.share("model", sizes)
        states = {name: spec.state_dict() for name, spec in self._specs.items()}
        for of_process in transport.gather("specs", states):
            for name, state in of_process.items():
                if name not in self._specs:
                    self._specs[name] = ClientSpec.from_state(state)

    def of_all(self, *, reset: bool) -> Blueprint:
        """Return the blueprint by which a rule checks the settings.

        Args:
            reset: whether clients begin each round without their optimizer's state.
        """
        clients = self._members.clients
        model = self.blueprint(min(clients))
        assert model is not None
        model.clients = tuple(clients.values())
        model.reset = reset
        return model

    def blueprint(self, client: str) -> Blueprint | None:
        """Return the blueprint of a client's federated part; None if the client is in another
        process, and nothing is known of it.
        """
        spec = self._specs.get(client)
        if spec is None:
            return None
        fresh = self._members.fresh
        return Blueprint(
            lambda seed: fresh(spec, seed),
            self._sharing.names[client],
            self._sharing.parameters[client],
            self._members.device,
        )

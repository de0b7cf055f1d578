"""Partial models whose private and federated parts are trained in turn: FedRep (Collins, Hassani,
Mokhtari and Shakkottai 2021, "Exploiting Shared Representations for Personalized Federated
Learning", arXiv:2102.07078) and FedAlt (Pillutla, Malik, Mohamed, Rabbat, Sanjabi and Xiao 2022,
"Federated Learning with Partial Model Personalization", arXiv:2204.03809).
"""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, expect
from fedlit.exchange.schedule import wrong_every
from fedlit.nn.network import NetworkFactory
from fedlit.spec import ClientSpec

_log = logging.getLogger(__name__)


class Alternating(FederatedClient):
    """After each exchange, the private parameters are trained while the federated ones keep the
    values that were received; then the federated parameters are trained while the private ones stay
    as they are (Algorithm 1 of both papers).

    ``exchange.federated`` determines the parts: with ``[encoder, core]`` the head is trained first,
    as in FedRep; any other part is FedAlt. A part that rests has no gradient, so that neither
    momentum nor weight decay moves it. In the private last phase (``model.then``) everything is
    trained.

    NOTE[DIFF]: FedRep's new clients train only a head; here a newcomer does what ``fedlit
    add-client`` does with any method.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs).
        private_first: how long the private part is trained first: ``epoch``, ``{epochs: n}`` or
            ``{steps: n}`` of the client's optimizer. For the rest of the round, the federated part
            is trained.
        **kwargs: see :class:`~fedlit.client.client.FederatedClient`.

    Raises:
        ConfigError: a round ends before the federated part is trained, nothing is private, or
            nothing is federated.

    Example:
        >>> from fedlit import MLP
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ())
        >>> Alternating(spec, MLP, private_first={"steps": 5}).private_first
        {'steps': 5}
    """

    stackable = True
    first_setting = "private_first"
    """The argument that sets how long the first part is trained, for messages."""

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory,
        private_first: Literal["epoch"] | dict[str, int] = "epoch",
        **kwargs: Any,
    ) -> None:
        super().__init__(spec, network, **kwargs)
        if private_first == "epoch":
            private_first = {"epochs": 1}
        allowed = isinstance(private_first, dict) and not wrong_every(private_first)
        expected = "epoch, {epochs: n} or {steps: n} with n of at least 1"
        expect(allowed, f"{type(self).__name__}: {self.first_setting}", expected, private_first)
        self.private_first = private_first
        self._round = 1
        self._trainable = frozenset[str]()
        self._turn = ""
        self._warned = False

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Refuse rounds in which one of the parts is never trained."""
        federated = self._federated_parameters()
        private = {name for name, _ in self.named_parameters()} - federated
        for kind, parameters in (("federated", federated), ("private", private)):
            if not parameters:
                raise ConfigError(
                    f"client {self.spec.name!r}: Alternating expected federated and private "
                    f"parameters that take turns, found none that is {kind}; set "
                    "exchange.federated to a part of the network, such as [core], or model.client "
                    "to fedlit.FederatedClient"
                )
        self.check_rounds(every)
        return []

    def check_rounds(self, every: str | Mapping[str, int]) -> None:
        """Refuse rounds that end before the second part is trained."""
        unit, first = next(iter(self.private_first.items()))
        round = {f"{every}s": 1} if isinstance(every, str) else every
        self._round = round.get("epochs", 1)
        comparable = unit in round
        if (comparable and round[unit] <= first) or (unit == "epochs" and not comparable):
            raise ConfigError(
                f"client {self.spec.name!r}: {type(self).__name__} expected rounds that are longer "
                f"than {self.first_setting}, found exchange.every: {every} and "
                f"{self.first_setting}: {self.private_first}, so that the part that comes second "
                f"is never trained; set exchange.every: {{{unit}: {2 * first}}}"
            )

    def first_part(self) -> set[str]:
        """Return the names of the parameters that are trained first: the private ones."""
        return {name for name, _ in self.named_parameters()} - self._federated_parameters()

    def _federated_parameters(self) -> set[str]:
        federated = {self._federated.tensor_of(name) for name in self._federated}
        return federated.intersection(name for name, _ in self.named_parameters())

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Train the part whose turn it is, and freeze the other one."""
        if not self.steps_now:
            return  # gradients of an earlier batch wait for their step
        if not self._turn:
            # Parameters that were frozen before the first turn stay frozen in every turn.
            trainable = [name for name, w in self.named_parameters() if w.requires_grad]
            self._trainable = frozenset(trainable)
        turn = self._next_turn()
        if turn == self._turn:
            return
        self._turn = turn
        first_part = self.first_part()
        for name, parameter in self.named_parameters():
            part = "first" if name in first_part else "second"
            parameter.requires_grad_(name in self._trainable and turn in ("all", part))

    def _next_turn(self) -> str:
        """Return which part the next step trains: ``first``, ``second`` or, in fine-tuning,
        ``all``.
        """
        if self.fine_tuning:
            return "all"
        unit, first = next(iter(self.private_first.items()))
        done = self.steps_taken
        if unit == "epochs":
            done = self.trainer.current_epoch % self._round
        return "first" if done < first else "second"

    def on_send(self, steps: int) -> None:
        """Warn if a round was too short."""
        least = self.private_first.get("steps", 0)
        if least and steps <= least and not self._warned:
            self._warned = True
            _log.warning(
                "client %r: took %d steps in a round; the first %d train one part, so the other "
                "part was not trained; set %s lower, or exchange.every to longer rounds",
                self.spec.name,
                steps,
                least,
                self.first_setting,
            )

"""The questions that a rule may ask clients, and what it knows without asking: the structure of
their common part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedlit.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError, RunError, told_as
from fedlit.nn.blocks import FrozenBatchNorm
from fedlit.sharing import State, form_of, live_of, named_tensors
from fedlit.tasks.base import one_of

CHAIN = ("encoder", "core", "head")


class FederatedFunction:
    """The parts of a client (encoder, core, head) from the first to the last that has federated
    parameters, as a function of these parameters.

    It holds nothing that a client has learnt. Private parameters in between have their initial
    values, which are the same at all clients; batch normalisation uses the statistics of the
    function's inputs; dropout is off.

    Args:
        modules: maps each part's name to its module, in the order in which they are called; the
            modules are copied.
        federated: the names of the federated parameters.
        shape: of one input.
        bounded: makes probabilities of the outputs of a head, whatever comes before their last
            dimension.

    Attributes:
        parameters: the names of the federated parameters that the function depends on.
        shape: of one input.
        bounded: see above.
        activations: the number of values that its layers compute for one input.
        ends_in_head: whether its outputs are the client's logits.

    Example:
        >>> function = FederatedFunction({"core": nn.Linear(2, 1, bias=False)}, ["core.weight"], (2,))
        >>> function({"core.weight": torch.tensor([[1.0, 2.0]])}, torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        federated: Iterable[str],
        shape: Sequence[int],
        bounded: Callable[[Tensor], Tensor] = one_of,
    ) -> None:
        self.bounded = bounded
        self._chain = nn.ModuleDict(
            {name: copy.deepcopy(module) for name, module in modules.items()}
        )
        self._chain.eval().requires_grad_(False)
        for module in self._chain.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(
                module, FrozenBatchNorm
            ):
                # without statistics of its own it uses those of its input
                module.track_running_stats = False
                module.running_mean = module.running_var = module.num_batches_tracked = None
        parameter_names = {name for name, _ in self._chain.named_parameters()}
        self.parameters = tuple(name for name in federated if name in parameter_names)
        self.shape = tuple(shape)
        self.activations = self._count()
        self.ends_in_head = CHAIN[-1] in modules

    @torch.no_grad()
    def _count(self) -> int:
        sizes: list[int] = []
        leaves = [module for module in self._chain.modules() if not list(module.children())]
        hooks = [
            leaf.register_forward_hook(lambda _, __, out: sizes.append(out.numel() // 2))
            for leaf in leaves
        ]
        self({}, torch.zeros(2, *self.shape))
        for hook in hooks:
            hook.remove()
        return sum(sizes)

    def to(self, device: torch.device) -> FederatedFunction:
        """Move the function to a device and return it."""
        self._chain.to(device)
        return self

    def __call__(self, state: State, x: Tensor) -> Tensor:
        """Return the outputs (n, …) for inputs (n, *shape). ``state`` holds ``parameters``, and may
        hold more.
        """
        for name, module in self._chain.items():
            prefix = f"{name}."
            parameters = {
                key.removeprefix(prefix): state[key]
                for key in self.parameters
                if key in state and key.startswith(prefix)
            }
            x = functional_call(module, parameters, (x,))
        return x

    def stacked(self, states: State, x: Tensor) -> Tensor:
        """Return the outputs (m, n, …) of m functions at once, for tensors (m, …) by name and
        inputs (m, n, *shape).
        """
        parameters = {name: states[name] for name in self.parameters}
        outputs: Tensor = vmap(self.__call__)(parameters, x)
        return outputs


def _span(federated: Sequence[str]) -> tuple[int, int]:
    """Return the first and the last part of the chain that have federated parameters."""
    first_parts = {key.partition(".")[0] for key in federated}
    positions = [position for position, name in enumerate(CHAIN) if name in first_parts]
    misplaced = [
        key for key in federated if key.partition(".")[0] not in CHAIN or key.endswith("]")
    ]
    if not positions or misplaced:
        raise ConfigError(
            "exchange.rule: this rule calls the federated part as a function, expected whole "
            f"tensors within encoder, core and head, found {', '.join(misplaced[:3]) or 'nothing'}; "
            "choose another rule or other patterns in exchange.federated, or set "
            "exchange.by_name: []"
        )
    return positions[0], positions[-1]


def entering(client: nn.Module, federated: Sequence[str], x: Tensor) -> Tensor:
    """Return the input of a client's federated part for an input ``x`` of its encoder."""
    for name in CHAIN[: _span(federated)[0]]:
        x = getattr(client, name)(x)
    return x


@torch.no_grad()
def function_of(
    client: nn.Module,
    inputs: int,
    federated: Sequence[str],
    bounded: Callable[[Tensor], Tensor] = one_of,
) -> FederatedFunction:
    """Return the federated part of a client as a function.

    Args:
        client: a client with an encoder, a core and a head. It must not be trained yet, because
            private parameters within the part keep the values that they have here.
        inputs: the width of its input.
        federated: the names of its federated parameters.
        bounded: see :class:`FederatedFunction`.

    Raises:
        ConfigError: there are federated parameters outside of encoder, core and head, or none
            within them.
    """
    first, last = _span(federated)
    x = entering(copy.deepcopy(client).eval(), federated, torch.zeros(2, inputs))
    chain = {name: getattr(client, name) for name in CHAIN[first : last + 1]}
    return FederatedFunction(chain, federated, x.shape[1:], bounded)


ROWS = 4096
"""Rows that are evaluated at once."""


def bytes_of(state: State) -> int:
    """Return the bytes of a state in a message.

    Example:
        >>> bytes_of({"w": torch.zeros(2, 3)})
        24
    """
    return sum(value.numel() * value.element_size() for value in state.values())


@dataclass(frozen=True)
class Losses:
    """Asks for the mean loss over the client's training rows, (len(states),) float32, with the
    federated tensors of each state in place of the client's.
    """

    states: Sequence[State]


@dataclass(frozen=True)
class InputRange:
    """Asks for the least and largest values of the federated part's inputs over training rows: (2,
    *shape) float32.
    """


@dataclass(frozen=True)
class AnswerForm:
    """The form of one tensor of an answer.

    Attributes:
        dtypes: the types that it may have.
        shape: its sizes; None for one that only the client knows.
    """

    dtypes: tuple[str, ...]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        """Return the form in words."""
        sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
        return f"{' or '.join(self.dtypes)} of shape ({sizes})"

    def fits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor of a type and a shape has this form."""
        if dtype not in self.dtypes or len(shape) != len(self.shape):
            return False
        return all(
            expected is None or size == expected
            for size, expected in zip(shape, self.shape, strict=True)
        )


@dataclass(frozen=True)
class Own:
    """A question for clients of one class, answered by the named tensors of ``client.answer(topic,
    tensors, rows)``.

    Attributes:
        topic: what the question is about.
        tensors: the tensors that come with it, by name.
        answers: the forms of all tensors of its answer, by name. They are not sent: who asks knows
            them. If None, any tensors are believed.

    Example:
        >>> question = Own("slope", answers={"slope": AnswerForm(("float64",), (2, None))})
        >>> wrong_answer(question, {"slope": torch.zeros(2, 5).double()})
        ''
        >>> wrong_answer(question, {"slope": torch.zeros(3, 5).double()})
        'slope: float64 of shape (2, any)'
    """

    topic: str
    tensors: State = field(default_factory=dict)
    answers: Mapping[str, AnswerForm] | None = field(default=None, compare=False)


Question = Losses | InputRange | Own
QUESTIONS: dict[str, type[Any]] = {"losses": Losses, "input_range": InputRange, "own": Own}
"""Maps the name of each question in messages to its class."""


def wrong_answer(question: Question, answer: Any) -> str:
    """Return the form that an answer should have, in words, if it has another one; otherwise an
    empty text. Answers to :class:`Own` are finite, and have the forms that the question expects.

    Example:
        >>> wrong_answer(Losses([{}, {}]), torch.zeros(2)), wrong_answer(Losses([{}, {}]), torch.zeros(3))
        ('', 'float32 of shape (2,)')
    """
    if isinstance(question, Losses):
        shape = (len(question.states),)
        valid = (
            isinstance(answer, Tensor) and answer.dtype == torch.float32 and answer.shape == shape
        )
        return "" if valid else f"float32 of shape {shape}"
    if isinstance(question, InputRange):
        valid = (
            isinstance(answer, Tensor)
            and answer.dtype == torch.float32
            and answer.shape[:1] == (2,)
        )
        return "" if valid else "float32 of shape (2, …)"
    named = isinstance(answer, dict) and all(isinstance(value, Tensor) for value in answer.values())
    if not named or not all(bool(value.isfinite().all()) for value in answer.values()):
        return "finite named tensors"
    if question.answers is None:
        return ""
    return wrong_forms({name: form_of(value) for name, value in answer.items()}, question.answers)


def wrong_forms(
    forms: Mapping[str, tuple[str, tuple[int, ...]]], expected: Mapping[str, AnswerForm]
) -> str:
    """Return what an answer should have, in words, if it has other tensors than expected; otherwise
    an empty text.

    Args:
        forms: maps the name of each tensor of the answer to its (dtype, shape).
        expected: the forms that all of them should have, by name.
    """
    if forms.keys() != expected.keys():
        return f"tensors named {', '.join(expected) or 'nothing'}"
    wrong = (name for name, form in expected.items() if not form.fits(*forms[name]))
    return next((f"{name}: {expected[name]}" for name in wrong), "")


@dataclass
class Blueprint:
    """The structure of clients' networks, which is known without asking them. It holds nothing that
    was learnt.

    Attributes:
        build: makes an untrained client, with initial values of the run's seed (None) or of another
            one.
        names: the names of its federated tensors.
        parameters: the names of the federated tensors that are parameters.
        device: the device on which rules compute.
        clients: the clients of this process, as their configuration makes them; only known to
            ``Rule.check``.
        reset: whether each round begins with an empty optimizer state; only known to
            ``Rule.check``.
    """

    build: Callable[[int | None], FederatedClient]
    names: Sequence[str]
    parameters: Sequence[str]
    device: torch.device
    clients: Sequence[FederatedClient] = ()
    reset: bool = False

    def part(self, names: Collection[str]) -> Blueprint:
        """Return a blueprint that has only some of the federated tensors."""
        remaining = [name for name in self.names if name in names]
        parameters = [name for name in self.parameters if name in names]
        return replace(self, names=remaining, parameters=parameters)

    def function(self) -> FederatedFunction:
        """Return the federated part as a function."""
        client = self.build(None)
        return function_of(
            client, client.spec.num_features, self.parameters, client.spec.task.bounded
        )

    def fresh(self, seed: int | None) -> State:
        """Return initial values of the federated tensors, drawn from another seed, or from the
        run's seed if None.
        """
        client = self.build(seed)
        drawn = live_of(client, named_tensors(client), self.names)
        return {name: drawn[name].detach().to(self.device) for name in self.names}


@dataclass
class Answerer:
    """Answers questions for one client, from its training rows.

    Attributes:
        client: the client.
        parameters: the names of its federated parameters.
        rows: its training rows.
    """

    client: FederatedClient
    parameters: Sequence[str]
    rows: Rows

    @torch.no_grad()
    def __call__(self, question: Question) -> Any:
        """Return the answer; the class of each question describes it."""
        if isinstance(question, Own):
            return self._own(question)
        was = {module: module.training for module in self.client.modules()}
        self.client.eval()
        try:
            return (
                self._losses(question.states)
                if isinstance(question, Losses)
                else self._input_range()
            )
        finally:
            for module, training in was.items():
                module.training = training

    def _losses(self, states: Sequence[State]) -> Tensor:
        federated = self.client.federated
        total = []
        for state in states:
            whole = self.client._federated.whole(
                {name: value for name, value in state.items() if name in federated}
            )
            parts = [
                self.client.loss(functional_call(self.client, whole, (x,)), y).double() * len(y)
                for x, y in self._batches()
            ]
            total.append(torch.stack(parts).sum() / len(self.rows))
        return torch.stack(total).float()

    def _own(self, question: Own) -> State:
        source = (
            f"client {self.client.spec.name!r}: "
            f"{type(self.client).__name__}.answer({question.topic!r})"
        )
        with told_as(lambda error: RunError(f"{source}: {type(error).__name__}: {error}")):
            answer = self.client.answer(question.topic, question.tensors, self.rows)
        if not isinstance(answer, dict) or not all(
            isinstance(value, Tensor) for value in answer.values()
        ):
            raise RunError(
                f"{source}: expected named tensors, found {type(answer).__name__}; return a "
                "dictionary"
            )
        return answer

    def _input_range(self) -> Tensor:
        inputs = torch.cat([entering(self.client, self.parameters, x) for x, _ in self._batches()])
        return torch.stack([inputs.amin(0), inputs.amax(0)])

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.rows.x.split(ROWS), self.rows.y.split(ROWS), strict=True)

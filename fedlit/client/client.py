"""A client: one party's network, its objective and its scores. A new method starts as a subclass of
this.
"""

import copy
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.hooks import CheckpointHooks, ModelHooks
from lightning.pytorch.utilities.types import LRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer

from fedlit.client.hooks import call_hook, settings_of, warn_of_misspelt
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.network import Network, NetworkFactory
from fedlit.sharing import State, select, taken_again
from fedlit.slices import Live
from fedlit.spec import ClientSpec
from fedlit.stacks import alone, parts_in
from fedlit.tasks.metrics import Site, SiteMetrics
from fedlit.tasks.scores import LOSS, Score

_log = logging.getLogger(__name__)


class FederatedClient(LightningModule):
    """One party of a federation: its encoder, core and head, its loss, its optimizer and its
    metrics.

    The loop calls ``training_step`` with the client's own batch, steps the client's optimizer,
    forwards Lightning's hooks, and scores ``evaluate``. The exchange determines which of the
    client's named tensors are federated; a client knows nothing of others. To add a method,
    override what differs:

    - ``loss``, ``objective`` or ``training_step``: the function that is minimised, of logits, of
      rows, or in a step;
    - ``on_send``, ``on_receive``: what the client does before it sends and after it receives;
    - ``publish``: tensors that are sent together with the federated ones, for a rule that needs
      them;
    - ``answer``: answers to further questions of a rule;
    - ``on_rows``: what it does with its training rows before any step;
    - ``on_plan``: which settings it refuses, and its remarks on those that it accepts;
    - ``on_fine_tune_start``: what it does when the private last phase (``model.then``) begins;
    - ``forward``: how the parts make a prediction;
    - ``configure_optimizers``: other optimizers; with several, set ``self.automatic_optimization =
      False`` and let ``training_step`` call ``descend`` for each;
    - ``configure_metrics``: other scores; those that the task does not have are listed in
      ``scores``.

    Args:
        spec: the client's description.
        network: makes the network from (num_features, num_outputs); None in a class whose
            ``forward`` uses other parts.
        class_weights: whether classes have equal weights in the loss (``balanced``): each row is
            weighted by the inverse of its class's share of the client's training rows, weights
            scaled to sum to the number of its classes. It has no effect if the client predicts a
            number.

    Attributes:
        private: patterns of modules or tensors (see :func:`fedlit.sharing.select`) that are never
            sent, whatever ``exchange.federated`` selects; set it in a class whose method keeps a
            part private.
        takes_steps: set it to False in a class that learns only from exchanges, or fits its rows as
            a whole: fedlit then does not warn that its steps change nothing.
        compares_inputs: set it to True in a class whose exchange compares single inputs between
            clients: the plan then warns if ``data.scaling`` makes these mean different things.
        adapts: whether ``on_receive`` may change the client's own federated tensors, so that
            clients differ right after an exchange. It is true for each class that overrides
            ``on_receive``. Set it to False beside an override that leaves these tensors alone:
            clients that sit out a round may then share memory.
        requires: the settings without which the class does not work: maps each key (``data.align``,
            …, or ``exchange.rule``, by the name of its class) to the values that are accepted, the
            first of which a message recommends.
        side_by_side: set it to False in a class whose steps seed or read generators of their own,
            or otherwise touch what clients share: the clients of its federation are then stepped
            one after another.
        weighs_rows: set it to False in a class that has no use for weights of rows
            (``data.source.weight``), which then are refused, as in a class with a ``loss`` of its
            own.
        stackable: whether clients of the same structure may be stepped as one
            (:mod:`fedlit.engine.stack`). A subclass has to set it again, and may do so if its
            ``forward``, ``loss`` and ``objective`` use nothing of the client but its modules and its
            settings (attributes that are numbers, words or switches).
        state: anything else that the client must remember, by name: tensors, numbers, strings,
            lists and dictionaries of these. It is saved in the checkpoint.

    Example:
        >>> from fedlit import MLP
        >>> client = FederatedClient(ClientSpec("cleveland", ("age", "sex"), (0, 1), {}, ()), MLP)
        >>> client.probabilities(client(torch.zeros(4, 2))).shape
        torch.Size([4, 2])
    """

    private: tuple[str, ...] = ()
    takes_steps = True
    compares_inputs = False
    weighs_rows = True
    adapts = False
    requires: Mapping[str, tuple[str, ...]] = {}
    side_by_side = True
    stackable = True
    no_decay: tuple[str, ...] = ()
    class_weight: Tensor | None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        warn_of_misspelt(cls, FederatedClient, ModelHooks, CheckpointHooks)
        if "on_receive" in vars(cls) and "adapts" not in vars(cls):
            cls.adapts = True
        constructor = vars(cls).get("__init__")
        if constructor is not None and "network" in inspect.signature(constructor).parameters:
            # The annotation lets a configuration name the network by its class.
            constructor.__annotations__.setdefault("network", NetworkFactory)

    def __init__(
        self,
        spec: ClientSpec,
        network: NetworkFactory | None,
        class_weights: Literal["none", "balanced"] = "none",
    ) -> None:
        super().__init__()
        self.spec = spec
        if callable(network):
            built = self.make_network(network)
            self.no_decay = getattr(built, "no_decay", ())
            self.encoder: nn.Module = built.encoder
            self.core: nn.Module = built.core
            self.head: nn.Module = built.head
        elif network is not None or type(self).forward is FederatedClient.forward:
            actual = "none"
            if network is not None:
                actual = f"the {type(network).__name__} {network!r}"
            raise ConfigError(
                f"client {spec.name!r}: expected a network class, found {actual}; set "
                "model.client.network, such as fedlit.MLP"
            )
        self.state: dict[str, Any] = {}
        weight = None
        if class_weights == "balanced":
            weight = spec.task.balance()
            if weight is None:
                _log.warning(
                    "%s: class_weights: balanced has no effect, because its target is a number",
                    spec.name,
                )
        self.register_buffer("class_weight", weight, persistent=False)
        # Set by the loop, which has the configuration of optimizers.
        self.optimizer_factory: Callable[[Iterable], Optimizer] = torch.optim.AdamW
        self.scheduler_factory: Callable[[Optimizer], Any] | None = None
        self.scheduler_interval = "epoch"
        self.gradient_clip_val: float | None = None
        # Also set by the loop, before each step: batches per optimizer step, and whether this one
        # is the last of them.
        self.accumulate = 1
        self.steps_now = True
        # Set by the federation: whether a private last phase follows the federation, and whether it
        # has begun.
        self.fine_tunes = False
        self.fine_tuning = False
        self._optimizers: list[Optimizer] = []
        self._scheduler_configs: list[LRSchedulerConfig] = []
        self._logged: dict[str, list[Tensor]] = {}
        self._live = Live()
        # Set by the federation: optimizer steps since the last exchange, and whether the last batch
        # was skipped.
        self.steps_taken = 0
        self.skipped = False
        # Set by the federation, before each step: how much each row of the batch counts.
        self.row_weight: Tensor | None = None
        # Set by the stack: whether the client is stepped with others as one.
        self.stacked = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of this client alone. A tensor that is a part of several clients' is copied
        without the others' part, which a copy of its memory would hold.
        """
        self._separate(memo)
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(super().__getstate__(), memo))
        twin.stacked = False
        return twin

    def make_network(self, network: NetworkFactory) -> Network:
        """Return a network for this client. One with a method ``meet`` gets to know its inputs and
        outputs by name.
        """
        built = network(self.spec.num_features, self.spec.num_outputs)
        if hasattr(built, "meet"):
            inputs = self.spec.inputs or tuple(Input(name, name) for name in self.spec.features)
            built.meet(inputs, self.spec.output_labels)
        return built

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores of the client, the main one first. A class whose ``configure_metrics`` adds a
        score lists it here, so that it is known whether more is better: ``scores =
        (*Classification.scores, Score(...))``.
        """
        return self.spec.task.scores

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs, for instance logits.

        Shape:
            - x: (n, d) float32
            - output: (n, num_outputs), or (n, members, num_outputs) of an ensemble
        """
        outputs: Tensor = self.head(self.core(self.encoder(x)))
        return outputs

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the task's mean loss, weighted by class if ``class_weights`` is ``balanced``; for
        an ensemble, the mean over its members.

        Shape:
            - logits: as ``forward`` gives them
            - y: the target as the task encodes it: (n,), or (n, labels)
            - output: scalar
        """
        if logits.dim() == 3:
            members = logits.shape[1]
            y = y.unsqueeze(1).expand(-1, members, *y.shape[1:]).flatten(0, 1)
            logits = logits.flatten(0, 1)
        if self.row_weight is None:
            return self.spec.task.loss(logits, y, self.class_weight)
        weight = self.row_weight.repeat_interleave(len(y) // len(self.row_weight))
        return self.spec.task.loss(logits, y, self.class_weight, weight)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the objective on one batch of the client, a scalar."""
        return self.objective(batch.x, batch.y)

    def objective(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the client's objective on rows: their loss.

        Shape:
            - x: (n, d) float32
            - y: the target as the task encodes it: (n,), or (n, labels)
            - output: scalar
        """
        return self.loss(self(x), y)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predictions, (n, width): probabilities, or a number in the user's units. For
        an ensemble, they are the mean of its members' predictions.
        """
        if outputs.dim() == 3:
            rows, members = outputs.shape[:2]
            predicted = self.spec.task.predict(outputs.flatten(0, 1))
            mean: Tensor = predicted.unflatten(0, (rows, members)).mean(1)
            return mean
        return self.spec.task.predict(outputs)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the same as :meth:`predict`, under the name that a classifier uses."""
        return self.predict(logits)

    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return predictions (n, width), and the mean loss over rows whose label the client knows
        (NaN if none).
        """
        return self.score(self(batch.x), batch)

    def score(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the result of ``evaluate``, given the batch's outputs. The loss has no class
        weights; for an ensemble, it is the loss of the mean prediction.
        """
        labelled = self.spec.task.known(batch.y)
        predicted = self.probabilities(logits)
        if logits.dim() == 3:
            logits = self.spec.task.of_members(logits)
        if not bool(labelled.any()):
            return predicted, logits.new_tensor(math.nan)
        # Classes have equal weights in a score, whatever their weights in training.
        class_weight = self.class_weight
        self.class_weight = None
        if batch.weight is not None:
            self.row_weight = batch.weight[labelled]
        try:
            loss = self.loss(logits[labelled], batch.y[labelled])
        finally:
            self.class_weight = class_weight
            self.row_weight = None
        return predicted, loss

    def configure_metrics(self, site: Site) -> SiteMetrics:
        """Return the metric that collects (predictions, y, loss) and computes named scalars for one
        site and split.
        """
        return SiteMetrics(site, self.spec.task)

    def configure_optimizers(self) -> Any:
        """Return the configured optimizer over all parameters, with the configured schedule if
        there is one. Parameters that the network's ``no_decay`` names have no weight decay.
        """
        parameters = dict(self.named_parameters())
        without_decay = set(select(parameters, self.no_decay))
        if not without_decay:
            return self.optimizer_of(self.parameters())
        decayed = [w for name, w in parameters.items() if name not in without_decay]
        exempt = [w for name, w in parameters.items() if name in without_decay]
        return self.optimizer_of([{"params": decayed}, {"params": exempt, "weight_decay": 0.0}])

    def optimizer_of(self, parameters: Iterable, lr_factors: Sequence[float] = ()) -> Any:
        """Return the configured optimizer and schedule over some parameters.

        Args:
            parameters: tensors, or groups as torch's optimizers take them.
            lr_factors: the factors by which the learning rates of the groups are multiplied.
        """
        with settings_of(self.spec.name, "model.optimizer"):
            optimizer = self.optimizer_factory(parameters)
        for group, factor in zip(optimizer.param_groups, lr_factors, strict=False):
            group["lr"] = factor * group["lr"]
        if self.scheduler_factory is None:
            return optimizer
        with settings_of(self.spec.name, "model.scheduler"):
            scheduler = self.scheduler_factory(optimizer)
        # Only lightning.pytorch.cli.ReduceLROnPlateau has a monitor.
        monitor = getattr(scheduler, "monitor", None)
        config = {"scheduler": scheduler, "interval": self.scheduler_interval, "monitor": monitor}
        return {"optimizer": optimizer, "lr_scheduler": config}

    def descend(
        self, loss: Tensor, optimizers: Iterable[Optimizer], clipped: Iterable[Sequence[str]]
    ) -> None:
        """Take a step down a loss: compute gradients, clip them and step optimizers as configured.

        The loop does this with the loss that ``training_step`` returns; a client that steps several
        optimizers by itself calls it for each of them. If batches are accumulated, the optimizers
        step after the last one.

        Args:
            loss: the loss, a scalar.
            optimizers: the optimizers that step.
            clipped: lists of names of parameters; the gradients of each list are limited together.
        """
        if self.accumulate > 1:
            loss = loss / self.accumulate
        loss.backward()
        call_hook(self, "on_after_backward")
        if not self.steps_now:
            return
        if self.gradient_clip_val:
            parameters = dict(self.named_parameters())
            for names in clipped:
                part = [parameters[name] for name in names]
                nn.utils.clip_grad_norm_(part, self.gradient_clip_val)
        for optimizer in optimizers:
            call_hook(self, "on_before_optimizer_step", optimizer)
            optimizer.step()
            call_hook(self, "on_before_zero_grad", optimizer)
            optimizer.zero_grad()
        if torch.is_autocast_enabled(self.device.type):
            # The cache holds the earlier weights, which a second loss would use.
            torch.clear_autocast_cache()

    def clipped_apart(self) -> list[list[str]]:
        """Return lists of names of parameters; ``gradient_clip_val`` limits the gradients of each
        list together. By default, one list has all parameters.
        """
        return [[name for name, _ in self.named_parameters()]]

    def on_receive(self, received: State) -> None:
        """Called after each exchange, and once before the first step with the state that the client
        starts from.

        Args:
            received: the federated tensors by name, as the rule returned them (before mixing with
                the update rate), and the tensors that the rule sends in addition, under names that
                begin with ``down/``. Other clients receive the same tensors, so changing one in
                place is refused.
        """

    def on_send(self, steps: int) -> None:
        """Called before the client sends, in each exchange that it takes part in; ``publish`` is
        called right after it.

        Args:
            steps: the number of optimizer steps that it has taken since the last exchange.
        """

    def on_rows(self, rows: Rows) -> None:
        """Called when the federation is built, with the client's training rows, for a class that
        fits them as a whole.

        Args:
            rows: the training rows, which may be read but not changed.
        """

    def on_plan(self, every: str | Mapping[str, int]) -> Iterable[str]:
        """Called before training, when it is known which tensors of the client are federated
        (:attr:`federated`), whether it is fine-tuned afterwards (``fine_tunes``) and how many
        batches a step has (``accumulate``).

        Args:
            every: the schedule of exchanges, as in ``exchange.every``; it has no meaning if nothing
                is federated.

        Returns:
            Notes for the user about these settings; the plan shows them.

        Raises:
            ConfigError: the class makes no sense under these settings.
        """
        return ()

    def on_fine_tune_start(self) -> None:
        """Called once, when the private last phase begins (``model.then``): the client has the best
        state of its epochs, its optimizers are empty, and nothing is exchanged any more.
        ``fine_tuning`` is true from then on, also in a run that is resumed in this phase.
        """

    def answer(self, topic: str, tensors: State, rows: Rows) -> State:
        """Answer a question that a rule asks clients of this class
        (:class:`fedlit.exchange.questions.Own`), from the client's rows. Random numbers that are
        drawn here are a function of the run's seed, the client's name and the round.

        Args:
            topic: the topic of the question.
            tensors: the tensors that come with the question; they must not be changed, because
                other clients may be given the same ones.
            rows: its training rows.

        Returns:
            Named tensors.

        Raises:
            ConfigError: the class cannot answer this question.
        """
        raise ConfigError(
            f"client {self.spec.name!r}: expected a client that can answer {topic!r}, found "
            f"{type(self).__name__}; set model.client to the class that exchange.rule is made for"
        )

    @property
    def rows_behind_answers(self) -> int | None:
        """The number of training rows that stand behind each value of :meth:`answer`, where it is
        not all of them; None by default. A site on whose answers too few rows stand
        (``data.facts_from``) takes part under masked sums only.
        """
        return None

    def publish(self) -> State:
        """Return further float32 tensors by name that are sent with the federated ones; none by
        default.

        It is also called for the plan, before training; the plan lists the names and sizes of the
        tensors.
        """
        return {}

    @property
    def corrections(self) -> Mapping[str, Mapping[str, float]]:
        """How the client's private parts change its columns, for the user: part (such as ``input
        scale``) → feature → value; nothing by default. ``fedlit explain`` compares clients by it.
        """
        return {}

    @property
    def federated(self) -> Mapping[str, Tensor]:
        """The client's federated tensors by name (live, not copies); empty until training
        starts.
        """
        return {name: tensor.detach() for name, tensor in self._federated.items()}

    @property
    def _federated(self) -> Live:
        """The federated tensors. They are looked up again where one was replaced."""
        if not self._live.intact:
            self._live = taken_again(self._live, self, f"client {self.spec.name!r}")
        return self._live

    @_federated.setter
    def _federated(self, live: Live) -> None:
        self._live = live

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the client's tensors by name, as every module of torch does. A client that is
        stepped with others as one (``stacked``) returns copies: torch saves a tensor with all of
        the memory in which it lies, and with it other clients' values.
        """
        state = super().state_dict(*args, **kwargs)
        is_whole = not args and kwargs.get("destination") is None
        if is_whole and not kwargs.get("keep_vars"):
            for name, value in state.items():
                state[name] = alone(value)
        return state

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle of the client holds: copies of its tensors, and nothing of clients
        that are stepped with it as one.
        """
        memo: dict[int, Any] = {id(self): self}
        self._separate(memo)
        state: dict[str, Any] = copy.deepcopy(super().__getstate__(), memo)
        return {**state, "stacked": False}

    def _separate(self, memo: dict[int, Any]) -> None:
        """Put a copy of each of the client's tensors that is a part of a larger one into the memo
        of a deep copy, which would otherwise copy all of the memory in which it lies.
        """
        values: list[object] = [vars(module) for module in self.modules()]
        values += [optimizer.state for optimizer in self._optimizers]
        for tensor in parts_in(values):
            memo[id(tensor)] = tensor.detach().clone()

    def __copy__(self) -> "FederatedClient":
        """Return another client with the same modules and tensors."""
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def log(  # type: ignore[override]
        self, name: str, value: Tensor | float, *args: object, **kwargs: object
    ) -> None:
        """Record a scalar. Its mean over the epoch is logged in the client's run as
        ``train/<name>``.

        Lightning's own ``log`` serves the Trainer's module only and costs about 190 µs a call; this
        one appends to a list.

        Raises:
            TypeError: there are further arguments, which would have no effect.
        """
        if args or kwargs:
            raise TypeError(
                "client.log(name, value) records the epoch's mean and takes nothing else, found "
                f"{[*args, *kwargs]}"
            )
        self._logged.setdefault(name, []).append(torch.as_tensor(value).detach())

    def log_dict(  # type: ignore[override]
        self, values: Mapping[str, Tensor | float], *args: object, **kwargs: object
    ) -> None:
        """Record several scalars; see :meth:`log`."""
        for name, value in values.items():
            self.log(name, value, *args, **kwargs)

    def pop_logged(self) -> dict[str, float]:
        """Return the mean of each scalar over the values recorded since the last call, by name."""
        means = {}
        for name, values in self._logged.items():
            # A stack records the values of several steps as one tensor.
            means[name] = float(torch.cat([value.float().reshape(-1) for value in values]).mean())
        self._logged.clear()
        return means

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """Return the optimizers of this client: one, or a list."""
        optimizers = self._optimizers
        return optimizers[0] if len(optimizers) == 1 else optimizers

    def lr_schedulers(self) -> Any:
        """Return the schedules of this client: None, one, or a list."""
        schedulers = [config.scheduler for config in self._scheduler_configs]
        if not schedulers:
            return None
        return schedulers[0] if len(schedulers) == 1 else schedulers


def main_score(scores_of: Mapping[str, tuple[Score, ...]]) -> Score:
    """Return the score by which a federation is watched: the main score that all clients share, or
    else the loss.
    """
    distinct = {id(scores): scores for scores in scores_of.values()}
    main = {scores[0] for scores in distinct.values()}
    if len(main) != 1:
        return LOSS
    return main.pop()


def has_hook(client: FederatedClient, hook: str) -> bool:
    """Return whether a client has a hook of its own, where :class:`FederatedClient` has an empty
    one.
    """
    return getattr(type(client), hook) is not getattr(FederatedClient, hook) or hook in vars(client)

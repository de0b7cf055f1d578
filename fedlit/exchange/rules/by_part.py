"""A different rule for each part of a network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from fedlit.errors import ConfigError, did_you_mean
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.rule import Facts, Need, Round, Rule, demand, settings_of
from fedlit.exchange.rules.clustered import Clustered
from fedlit.exchange.rules.mean import Mean
from fedlit.names import Clustering, joined
from fedlit.sharing import Sharing, State, select

Part = Rule | Literal["mean", "none", "by_name"]
"""What becomes of a part: a rule, or a word."""


class ByPart(Rule):
    """Each federated part has its own rule, with its own state.

    A part is named by a pattern, as in ``exchange.federated`` (see :func:`fedlit.sharing.select`).
    If several match a tensor, the last one applies, so put a default first (``"*": mean``). Besides
    rules there are three words: ``mean`` for :class:`~fedlit.exchange.rules.mean.Mean`; ``none``
    for what is never sent, whatever else matches it; ``by_name`` for the mean of slices by the
    names of columns and classes (as ``exchange.by_name`` has it).

    A rule sees only its own part of each update. A rule that clusters finds its clusters from that
    part, and only one part may have such a rule, because a client is in one cluster. Rules that
    only ask questions, and rules for a class of clients, cannot be used for a part.

    Args:
        parts: maps each pattern to its rule, or to one of the three words.

    Raises:
        ConfigError: no parts, an unknown word, or a rule that cannot be used for a part.

    Example:
        >>> from fedlit import FedAvgM
        >>> rule = ByPart({"*": "mean", "core": FedAvgM(0.5), "*norm*": "none"})
        >>> rule.part_of("core.0.weight"), rule.part_of("head.bias")
        ('core', '*')
    """

    def __init__(self, parts: dict[str, Part]) -> None:
        demand(bool(parts), "ByPart: parts", "patterns with a rule each", "none", "give some")
        for pattern in map(str, parts):
            _check_pattern(pattern)
        self.parts: dict[str, str] = {}
        self._rules: dict[str, Rule] = {}
        for pattern, part in parts.items():
            self.parts[pattern] = settings_of(part) if isinstance(part, Rule) else part
            if part != "none":
                self._rules[pattern] = _rule_of(pattern, part)
        at = self._rules.items()
        clustering = [key for key, rule in at if isinstance(rule, Clustered)]
        sending = [key for key, rule in at if rule.sends]
        _check_single("clusters clients", clustering)
        _check_single("sends clients something beside", sending)
        rules = self._rules.values()
        self.needs = frozenset[Need]().union(*(rule.needs for rule in rules))
        self.asks = "; ".join(f"{rule.asks} (for {pattern})" for pattern, rule in at if rule.asks)
        self.sends = "; ".join(
            f"{rule.sends} (for {pattern})" for pattern, rule in at if rule.sends
        )
        self.facts = Facts(
            # A masked sum has one weight for each client, so the parts must agree about weights.
            by_mean=all(rule.facts.by_mean for rule in rules)
            and len({rule.needs for rule in rules}) == 1,
            questions=joined(rule.facts.questions for rule in rules),
            whole_rate=any(rule.facts.whole_rate for rule in rules),
            private=tuple(f"!{pattern}" for pattern, part in self.parts.items() if part == "none"),
            by_name=tuple(map(self._by_name, self._rules)),
        )
        self.clustering: Clustering | None = None
        self._known: dict[str, str | None] = {}

    def part_of(self, name: str) -> str | None:
        """Return the pattern that a tensor belongs to; None if no pattern matches it.

        Args:
            name: the name of a tensor, or of a slice (``head.weight[Spruce]``).
        """
        if name not in self._known:
            tensor = name.partition("[")[0]
            self._known[name] = None
            for pattern in self._rules:
                if select([tensor], [pattern]):
                    self._known[name] = pattern
        return self._known[name]

    def _by_name(self, pattern: str) -> str:
        """Return what a part adds to ``exchange.by_name``."""
        if self.parts[pattern] == "by_name":
            return pattern
        return f"!{pattern}"

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse a federated tensor without a part, a part without a tensor, and whatever a part's
        rule refuses.
        """
        pattern_of = {name: self.part_of(name) for name in sharing.all_names}
        lonely = [name for name, pattern in pattern_of.items() if pattern is None]
        if lonely:
            rest = ""
            if len(lonely) > 1:
                rest = f" and {len(lonely) - 1} more"
            raise ConfigError(
                f"ByPart: expected a part for each federated tensor, found none for {lonely[0]}"
                f'{rest}; name it, begin with a default ("*": mean), or keep it private (none)'
            )
        remarks = []
        for pattern, rule in self._rules.items():
            if pattern not in pattern_of.values():
                raise _without_tensor(pattern, pattern_of)
            names = self._of_clients(pattern, sharing.names)
            parameters = self._of_clients(pattern, sharing.parameters)
            forms = {name: sharing.forms[name] for name in self._of(pattern, sharing.forms)}
            shared = Sharing(names, parameters, forms)
            try:
                remark = rule.check(shared, rate, model.part(shared.all_names), clients)
            except ConfigError as error:
                raise ConfigError(f"ByPart: {pattern}: {error}") from error
            if remark:
                remarks.append(f"for {pattern} {remark}")
        return "; ".join(remarks)

    # ------------------------------------------------------------------ a round

    def begin(self, round: Round) -> Mapping[str, State]:
        """Return what clients start from, as the rule of each part defines it."""
        return _joined(
            rule.begin(self._round(round, pattern)) for pattern, rule in self._rules.items()
        )

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        received = _joined(
            rule(self._round(round, pattern)) for pattern, rule in self._rules.items()
        )
        self.scalars = {}
        for part, rule in self._rules.items():
            self.scalars |= {f"{part}/{tag}": value for tag, value in rule.scalars.items()}
        self.clustering = next(
            (rule.clustering for rule in self._rules.values() if isinstance(rule, Clustered)), None
        )
        return received

    def _of(self, pattern: str, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.part_of(name) == pattern)

    def _of_clients(
        self, pattern: str, names: Mapping[str, Iterable[str]]
    ) -> dict[str, tuple[str, ...]]:
        return {client: self._of(pattern, client_names) for client, client_names in names.items()}

    def _round(self, round: Round, pattern: str) -> Round:
        """Return the round as the rule of a part sees it, with the clients that have sent tensors
        of this part.
        """
        updates = {}
        for client, update in round.updates.items():
            names = self._of(pattern, update.state)
            if names:
                state = {name: update.state[name] for name in names}
                parameters = self._of(pattern, update.parameters)
                updates[client] = replace(update, state=state, parameters=parameters)
        receivers = {client: self._of(pattern, names) for client, names in round.receivers.items()}
        model = round.model and round.model.part(set().union(*receivers.values()))
        return replace(round, updates=updates, receivers=receivers, model=model)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each rule, by pattern."""
        states = {pattern: rule.state_dict() for pattern, rule in self._rules.items()}
        return {pattern: state for pattern, state in states.items() if state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for pattern, memory in state.items():
            self._rules[pattern].load_state_dict(memory)


def _rule_of(pattern: str, part: Part) -> Rule:
    if isinstance(part, str) and part in ("mean", "by_name"):
        return Mean()
    if not isinstance(part, Rule):
        close = did_you_mean(str(part), ["mean", "none", "by_name"])
        raise ConfigError(
            f"ByPart: {pattern}: expected mean, none, by_name (by the names of columns and classes), "
            f"or a rule's class_path, found {part!r}.{close}"
        )
    why = ""
    if isinstance(part, ByPart):
        why = "has parts itself"
    elif part.facts.by_questions:
        why = "works by questions and looks at no tensor"
    if why:
        raise ConfigError(
            f"ByPart: {pattern}: expected a rule of a part, found {type(part).__name__}, which "
            f"{why}; make it the whole exchange.rule"
        )
    return part


def _check_pattern(pattern: str) -> None:
    if pattern.strip() and not pattern.startswith("!"):
        return
    mend = "name a part of the network"
    if pattern.startswith("!"):
        mend = f"! is not allowed here: write {pattern[1:]!r}: none"
    raise ConfigError(
        f"ByPart: parts: expected a pattern such as core or '*', found {pattern!r}; {mend}"
    )


def _check_single(role: str, patterns: Sequence[str]) -> None:
    """Refuse several parts whose rules have a role that only one of them may have."""
    if len(patterns) > 1:
        raise ConfigError(
            f"ByPart: expected at most one rule that {role}, found it at {' and '.join(patterns)}; "
            "give one of these parts another rule"
        )


def _without_tensor(pattern: str, pattern_of: Mapping[str, str | None]) -> ConfigError:
    """Return the error for a part that no federated tensor belongs to."""
    matched = [taker for name, taker in pattern_of.items() if select([name], [pattern])]
    key = f"ByPart: {pattern}: expected a federated tensor, found"
    if not matched:
        return ConfigError(f"{key} none; look at exchange.federated, or leave it out")
    later = " and ".join(dict.fromkeys(map(repr, matched)))
    return ConfigError(f"{key} that what stands behind it, {later}, takes all; put {later} first")


def _joined(received: Iterable[Mapping[str, State]]) -> dict[str, dict[str, Tensor]]:
    """Join the parts of each client."""
    joint: dict[str, dict[str, Tensor]] = {}
    for part in received:
        for client, state in part.items():
            joint.setdefault(client, {}).update(state)
    return joint

"""Another rule for each part of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Facts, Need, Round, Rule, settings_of
from fedlit.exchange.rules.clustered import Clustered
from fedlit.exchange.rules.mean import Mean
from fedlit.names import Clustering
from fedlit.sharing import Sharing, State, select

__all__ = ["ByPart", "Part"]

Part = Rule | Literal["mean", "none", "by_name"]
"""What becomes of a part: a rule, or a word."""


class ByPart(Rule):
    """Each part of what is federated has a rule of its own, with a state of its own.

    A part is named by a pattern, as in ``exchange.federated`` (see :func:`fedlit.sharing.select`). Where several match
    a tensor the last one has it, so that a default comes first (``"*": mean``). Beside rules there are three words:
    ``mean`` for :class:`~fedlit.exchange.rules.mean.Mean`; ``none`` for what does not travel at all, whatever else
    matches it; ``by_name`` for the mean of slices by the names of columns and classes (as ``exchange.by_name`` has it).

    A rule sees of clients what belongs to its part. One that clusters finds its clusters by its own part: one part may
    have such a rule, for a client is in one cluster. Rules that work by questions alone, and those that belong to a
    class of clients, are no rules of a part.

    Args:
        parts: pattern → rule, or word.

    Attributes:
        parts: pattern → its rule, in words.

    Raises:
        ConfigError: no parts, an unknown word, or a rule that is none of a part.

    Example:
        >>> from fedlit import FedAvgM
        >>> rule = ByPart({"*": "mean", "core": FedAvgM(0.5), "*norm*": "none"})
        >>> rule.part_of("core.0.weight"), rule.part_of("head.bias")
        ('core', '*')
    """

    def __init__(self, parts: dict[str, Part]) -> None:
        if not parts:
            raise ConfigError("ByPart: parts: expected patterns with a rule each, found none; give some")
        for pattern in parts:
            if not isinstance(pattern, str) or not pattern.strip() or pattern.startswith("!"):
                out = isinstance(pattern, str) and pattern.startswith("!")
                raise ConfigError(
                    f"ByPart: parts: expected a pattern such as core or '*', found {pattern!r}; "
                    + (f"! is not allowed here: write {pattern[1:]!r}: none" if out else "name a part of the network")
                )
        self.parts = {pattern: settings_of(own) if isinstance(own, Rule) else own for pattern, own in parts.items()}
        self._rules = {pattern: _rule_of(pattern, own) for pattern, own in parts.items() if own != "none"}
        for what, speaking in {
            "clusters clients": [key for key, own in self._rules.items() if isinstance(own, Clustered)],
            "sends clients something beside": [key for key, own in self._rules.items() if own.sends],
        }.items():
            if len(speaking) > 1:
                raise ConfigError(
                    f"ByPart: expected at most one rule that {what}, found it at {' and '.join(speaking)}; give one of "
                    "these parts another rule"
                )
        rules, at = self._rules.values(), self._rules.items()
        self.needs = frozenset[Need]().union(*(own.needs for own in rules))
        self.asks = "; ".join(f"{own.asks} (for {pattern})" for pattern, own in at if own.asks)
        self.sends = "; ".join(f"{own.sends} (for {pattern})" for pattern, own in at if own.sends)
        self.facts = Facts(
            # a masked sum has one weight a client
            by_mean=all(own.facts.by_mean for own in rules) and len({own.needs for own in rules}) == 1,
            questions={kind: values for own in rules for kind, values in own.facts.questions.items()},
            whole_rate=any(own.facts.whole_rate for own in rules),
            private=tuple(f"!{pattern}" for pattern, own in self.parts.items() if own == "none"),
            by_name=tuple(own if self.parts[own] == "by_name" else f"!{own}" for own in self._rules),
        )
        self.clustering: Clustering | None = None
        self._known: dict[str, str | None] = {}

    def part_of(self, name: str) -> str | None:
        """The pattern that has a tensor; None where none matches it.

        Args:
            name: of a tensor, of a slice (``head.weight[Spruce]``), or of an optimizer's (``core.weight@exp_avg``).
        """
        if name not in self._known:
            tensor = name.partition("[")[0].partition("@")[0]
            matching = [pattern for pattern in self._rules if select([tensor], [pattern])]
            self._known[name] = matching[-1] if matching else None
        return self._known[name]

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse a federated tensor without a part, a part without a tensor, and what a part's rule refuses."""
        found = {name: self.part_of(name) for name in sharing.all_names}
        if lonely := [name for name, pattern in found.items() if pattern is None]:
            raise ConfigError(
                f"ByPart: expected a part for each federated tensor, found none for {lonely[0]}"
                + (f" and {len(lonely) - 1} more" if len(lonely) > 1 else "")
                + '; name it, begin with a default ("*": mean), or keep it private (none)'
            )
        remarks = []
        for pattern, rule in self._rules.items():
            if pattern not in found.values():
                taken = dict.fromkeys(repr(own) for name, own in found.items() if select([name], [pattern]))
                later = " and ".join(taken)
                why = f"that what stands behind it, {later}, takes all; put {later} first" if taken else "none"
                raise ConfigError(
                    f"ByPart: {pattern}: expected a federated tensor, found {why}"
                    + ("" if taken else "; look at exchange.federated, or leave it out")
                )
            names, parameters = (
                {client: self._of(pattern, mine) for client, mine in every.items()}
                for every in (sharing.names, sharing.parameters)
            )
            own = Sharing(names, parameters, {name: sharing.forms[name] for name in self._of(pattern, sharing.forms)})
            try:
                remark = rule.check(own, rate, model.part(own.all_names), clients)
            except ConfigError as error:
                raise ConfigError(f"ByPart: {pattern}: {error}") from error
            remarks += [f"for {pattern} {remark}"] if remark else []
        return "; ".join(remarks)

    # ------------------------------------------------------------------ a round

    def begin(self, round: Round) -> Mapping[str, State]:
        """What clients start from, of each part what its rule says."""
        return _joined(rule.begin(self._round(round, pattern)) for pattern, rule in self._rules.items())

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        received = _joined(rule(self._round(round, pattern)) for pattern, rule in self._rules.items())
        self.scalars = {f"{at}/{tag}": value for at, own in self._rules.items() for tag, value in own.scalars.items()}
        self.clustering = next((own.clustering for own in self._rules.values() if isinstance(own, Clustered)), None)
        return received

    def _of(self, pattern: str, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.part_of(name) == pattern)

    def _round(self, round: Round, pattern: str) -> Round:
        """What the part's rule sees: the clients that have sent something of it."""
        updates = {}
        for client, update in round.updates.items():
            if names := self._of(pattern, update.state):
                state = {name: update.state[name] for name in names}
                updates[client] = replace(update, state=state, parameters=self._of(pattern, update.parameters))
        receivers = {client: self._of(pattern, names) for client, names in round.receivers.items()}
        model = round.model and round.model.part({name for own in receivers.values() for name in own})
        return replace(round, updates=updates, receivers=receivers, model=model)

    def state_dict(self) -> dict[str, Any]:
        """What each remembers, by pattern."""
        return {pattern: state for pattern, own in self._rules.items() if (state := own.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for pattern, own in state.items():
            self._rules[pattern].load_state_dict(own)


def _rule_of(pattern: str, own: Part) -> Rule:
    if isinstance(own, str) and own in ("mean", "by_name"):
        return Mean()
    if not isinstance(own, Rule):
        close = did_you_mean(own, ["mean", "none", "by_name"]) if isinstance(own, str) else ""
        raise ConfigError(
            f"ByPart: {pattern}: expected mean, none, by_name (by the names of columns and classes), or a rule's "
            f"class_path, found {own!r}.{close}"
        )
    if isinstance(own, ByPart) or own.facts.by_questions:
        why = "has parts itself" if isinstance(own, ByPart) else "works by questions and looks at no tensor"
        raise ConfigError(
            f"ByPart: {pattern}: expected a rule of a part, found {type(own).__name__}, which {why}; make it the whole "
            "exchange.rule"
        )
    return own


def _joined(received: Iterable[Mapping[str, State]]) -> dict[str, dict[str, Any]]:
    """Of each client all parts."""
    joint: dict[str, dict[str, Any]] = {}
    for part in received:
        for client, state in part.items():
            joint.setdefault(client, {}).update(state)
    return joint

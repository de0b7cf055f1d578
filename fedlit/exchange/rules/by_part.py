"""A different rule for each part of a network."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.exchange.questions import Blueprint
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
            out = pattern.startswith("!")
            mend = (
                f"! is not allowed here: write {pattern[1:]!r}: none"
                if out
                else "name a part of the network"
            )
            expected = "a pattern such as core or '*'"
            demand(
                bool(pattern.strip()) and not out, "ByPart: parts", expected, repr(pattern), mend
            )
        self.parts = {
            pattern: settings_of(part) if isinstance(part, Rule) else part
            for pattern, part in parts.items()
        }
        self._rules = {
            pattern: _rule_of(pattern, part) for pattern, part in parts.items() if part != "none"
        }
        for role, speaking in {
            "clusters clients": [
                key for key, rule in self._rules.items() if isinstance(rule, Clustered)
            ],
            "sends clients something beside": [
                key for key, rule in self._rules.items() if rule.sends
            ],
        }.items():
            actual = f"it at {' and '.join(speaking)}"
            mend = "give one of these parts another rule"
            demand(len(speaking) < 2, "ByPart", f"at most one rule that {role}", actual, mend)
        rules = self._rules.values()
        at = self._rules.items()
        self.needs = frozenset[Need]().union(*(rule.needs for rule in rules))
        self.asks = "; ".join(f"{rule.asks} (for {pattern})" for pattern, rule in at if rule.asks)
        self.sends = "; ".join(
            f"{rule.sends} (for {pattern})" for pattern, rule in at if rule.sends
        )
        self.facts = Facts(
            # a masked sum has one weight a client
            by_mean=all(rule.facts.by_mean for rule in rules)
            and len({rule.needs for rule in rules}) == 1,
            questions=joined(rule.facts.questions for rule in rules),
            whole_rate=any(rule.facts.whole_rate for rule in rules),
            private=tuple(f"!{pattern}" for pattern, part in self.parts.items() if part == "none"),
            by_name=tuple(
                pattern if self.parts[pattern] == "by_name" else f"!{pattern}"
                for pattern in self._rules
            ),
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
            matching = [pattern for pattern in self._rules if select([tensor], [pattern])]
            self._known[name] = matching[-1] if matching else None
        return self._known[name]

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse a federated tensor without a part, a part without a tensor, and whatever a part's
        rule refuses.
        """
        pattern_of = {name: self.part_of(name) for name in sharing.all_names}
        lonely = [name for name, pattern in pattern_of.items() if pattern is None]
        rest = f" and {len(lonely) - 1} more" if len(lonely) > 1 else ""
        mend = 'name it, begin with a default ("*": mean), or keep it private (none)'
        expected = "a part for each federated tensor"
        demand(not lonely, "ByPart", expected, f"none for {' '.join(lonely[:1])}{rest}", mend)
        remarks = []
        for pattern, rule in self._rules.items():
            later = " and ".join(
                dict.fromkeys(
                    repr(taker) for name, taker in pattern_of.items() if select([name], [pattern])
                )
            )
            why = f"that what stands behind it, {later}, takes all" if later else "none"
            mend = f"put {later} first" if later else "look at exchange.federated, or leave it out"
            demand(
                pattern in pattern_of.values(),
                f"ByPart: {pattern}",
                "a federated tensor",
                why,
                mend,
            )
            names = self._of_clients(pattern, sharing.names)
            parameters = self._of_clients(pattern, sharing.parameters)
            forms = {name: sharing.forms[name] for name in self._of(pattern, sharing.forms)}
            shared = Sharing(names, parameters, forms)
            try:
                remark = rule.check(shared, rate, model.part(shared.all_names), clients)
            except ConfigError as error:
                raise ConfigError(f"ByPart: {pattern}: {error}") from error
            remarks += [f"for {pattern} {remark}"] if remark else []
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
            if names := self._of(pattern, update.state):
                state = {name: update.state[name] for name in names}
                updates[client] = replace(
                    update, state=state, parameters=self._of(pattern, update.parameters)
                )
        receivers = {client: self._of(pattern, names) for client, names in round.receivers.items()}
        model = round.model and round.model.part(set().union(*receivers.values()))
        return replace(round, updates=updates, receivers=receivers, model=model)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each rule, by pattern."""
        return {
            pattern: state for pattern, rule in self._rules.items() if (state := rule.state_dict())
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for pattern, memory in state.items():
            self._rules[pattern].load_state_dict(memory)


def _rule_of(pattern: str, part: Part) -> Rule:
    if isinstance(part, str) and part in ("mean", "by_name"):
        return Mean()
    key = f"ByPart: {pattern}"
    close = did_you_mean(str(part), ["mean", "none", "by_name"])
    expected = "mean, none, by_name (by the names of columns and classes), or a rule's class_path"
    demand(isinstance(part, Rule), key, expected, f"{part!r}.{close}")
    assert isinstance(part, Rule)
    why = (
        "has parts itself"
        if isinstance(part, ByPart)
        else "works by questions and looks at no tensor"
    )
    actual = f"{type(part).__name__}, which {why}"
    mend = "make it the whole exchange.rule"
    demand(
        not (isinstance(part, ByPart) or part.facts.by_questions),
        key,
        "a rule of a part",
        actual,
        mend,
    )
    return part


def _joined(received: Iterable[Mapping[str, State]]) -> dict[str, dict[str, Any]]:
    """Join the parts of each client."""
    joint: dict[str, dict[str, Any]] = {}
    for part in received:
        for client, state in part.items():
            joint.setdefault(client, {}).update(state)
    return joint

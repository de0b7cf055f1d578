"""Checks the settings of an exchange that hold whatever the rule is."""

from fedlit.errors import ConfigError
from fedlit.exchange.minimum import Minimum, is_minimum
from fedlit.exchange.rule import demand
from fedlit.exchange.schedule import Every, wrong_every


def check_shares(every: Every, rate: float, participation: float, minimum: Minimum) -> None:
    """Refuse settings that are out of range, whatever the rule is.

    Raises:
        ConfigError: a value is out of range.
    """
    wrong = wrong_every(every)
    if wrong:
        raise ConfigError(wrong)
    share = "a share in (0, 1]"
    instead = "for no exchange set exchange.federated: []"
    demand(0 < rate <= 1, "exchange.rate", share, rate, instead)
    part = 0 < participation <= 1
    demand(part, "exchange.participation", share, participation, "1 for all clients")
    some = f"at least 1 client, or {share}"
    demand(is_minimum(minimum), "exchange.minimum", some, repr(minimum), "for example 0.5")

"""Attacks that are planted in chosen clients, to see what they do and which rules tolerate them."""

from fedlit.attacks.attack import Attack, Attackers
from fedlit.attacks.kinds import KINDS, Kind

__all__ = ["KINDS", "Attack", "Attackers", "Kind"]

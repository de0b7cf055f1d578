"""Attacks that are planted in chosen clients, to see what they do and who bears them."""

from fedlit.attacks.attack import KINDS, Attack, Kind
from fedlit.attacks.attackers import Attackers

__all__ = ["KINDS", "Attack", "Attackers", "Kind"]

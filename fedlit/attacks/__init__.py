"""Attacks that are injected in chosen clients, to measure their effect and find rules that tolerate
them.
"""

from fedlit.attacks.attack import Attack, Attackers
from fedlit.attacks.kinds import KINDS, Kind

__all__ = ["KINDS", "Attack", "Attackers", "Kind"]

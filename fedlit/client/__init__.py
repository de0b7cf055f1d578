"""A client: one party's network, what it minimises and how it is scored; and how clients are
built.
"""

from fedlit.client.client import FederatedClient, call_hook, overrides

__all__ = ["FederatedClient", "call_hook", "overrides"]

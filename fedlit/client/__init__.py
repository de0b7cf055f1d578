"""A client: one party's network, what it minimises and how it is scored; and how clients are built."""

from fedlit.client.client import FederatedClient, balanced, call_hook, overrides

__all__ = ["FederatedClient", "balanced", "call_hook", "overrides"]

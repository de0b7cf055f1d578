"""A client: one party's network, its objective and its scores; and the building of clients."""

from fedlit.client.client import FederatedClient
from fedlit.client.hooks import call_hook, overrides

__all__ = ["FederatedClient", "call_hook", "overrides"]

"""Why clients are no longer stepped with others as one."""

from __future__ import annotations

from fedlit.client.client import FederatedClient
from fedlit.engine.views import has_hooks, has_methods

LEFT = "left its stack"
"""The kind of a finding about clients that are no longer stepped with others as one."""

REPLACED = (
    "stepped alone from here on, because one of its modules, parameters or buffers was replaced by "
    "another one; write into the tensor instead (copy_)"
)
_HOOKED = "stepped alone, because it has a hook that a stack would not call"
_METHOD = "stepped alone, because one of its methods was replaced"
_NO_STACK = "stepped alone, because no stack takes a step such as its own"
DIFFERS = (
    "no longer stepped with those it was stepped with, because its settings, its modules' settings "
    "or modes, its frozen parameters, or the settings or state of its optimizer differ from theirs"
)


def why_alone(client: FederatedClient) -> str:
    """Return why a client has no key."""
    if has_hooks(client):
        return _HOOKED
    if has_methods(client):
        return _METHOD
    return _NO_STACK

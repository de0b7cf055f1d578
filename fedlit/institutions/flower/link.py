"""Flower's SuperLink, which sites reach: its state, and the run that is in progress."""

import logging
import os
import threading
import time
from typing import Any

from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedlit.errors import ConfigError, RunError


class Link:
    """The state of Flower's SuperLink: its sites, and the run that is in progress.

    Args:
        state: the state of Flower's SuperLink.
        sites: maps each site to its public key.

    Raises:
        ConfigError: two sites have the same key.
    """

    def __init__(self, state: Any, sites: dict[str, Any]) -> None:
        self._state = state
        self._task = 0
        activate = state.activate_node

        def anew(node: int, interval: float) -> bool:
            # a node that was killed and comes back is still on the list: without this it would be
            # refused for a while
            state.deactivate_node(node)
            return bool(activate(node, interval))

        state.activate_node = anew
        for site, key in sites.items():
            try:
                state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key_to_bytes(key), 0, name=site
                )
            except ValueError as error:
                raise ConfigError(
                    f"{site}.pub: expected a key of its own for each site, found one twice"
                ) from error
        threading.Thread(target=self._beat, daemon=True).start()

    def begin(self) -> dict[str, Any]:
        """Begin the run; returns its number, and the token with which the coordinator may ask for
        it.
        """
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType

        app = TaskType.SERVER_APP
        number = self._state.create_run(
            "fedlit/fedlit", "0", None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, app
        )
        (run,) = self._state.get_run_info(run_ids=[number])
        self._task = run.primary_task_id
        token = self._state.claim_task(self._task)
        if token is None or not self._state.activate_task(self._task):
            raise RunError(
                "expected Flower's SuperLink to begin a run, found that it did not; start again"
            )
        return {"run": number, "token": token}

    def _beat(self) -> None:
        """Keep the coordinator's task alive for as long as this process lives."""
        while True:
            time.sleep(10)
            if self._task:
                self._state.acknowledge_task_heartbeat(self._task)


def make_link(port: int, sites: dict[str, Any]) -> tuple[Any, Link]:
    """Make Flower's SuperLink, which keeps everything in memory.

    Args:
        port: the port of this machine at which the coordinator reaches it.
        sites: maps each site to its public key.

    Returns:
        The ASGI application and its state.
    """
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = SuperLinkLifespanConfig(
        control_address="127.0.0.1:0",
        health_server_address=None,
        host="127.0.0.1",
        port=port,
        insecure=False,
        certificates=None,
        # without it anyone on this machine might take the run
        superexec_auth_secret=os.urandom(32),
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=":flwr-in-memory:",
        # nobody but the parent starts programs
        isolation="process",
        runtime_dependency_install=False,
    )
    app = create_app(config, SuperLinkLifespan)
    return app, Link(app.state.linkstate_factory.state(), sites)

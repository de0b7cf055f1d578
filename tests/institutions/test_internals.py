"""What fedlit uses of Flower that is private to Flower: a release that changes it fails here, by name."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import fedlit
from fedlit.institutions.extra import FLOWER, quiet

pytest.importorskip("flwr", reason="the extra fedlit[flower] is not installed")
quiet()

_STATE = "flwr.server.superlink.linkstate:LinkState."
_REQUESTS = (
    "ActivateNode",
    "DeactivateNode",
    "SendNodeHeartbeat",
    "PullMessages",
    "PushMessages",
    "PullObject",
    "PushObject",
    "ConfirmMessageReceived",
)
CALLED = {
    "flwr.app:Array": "dtype shape stype data",
    "flwr.app:Message": "args dst_node_id message_type content ttl reply_to",
    "flwr.app.message:remove_content_from_message": "message",
    "flwr.common.serde:message_to_proto": "message",
    "flwr.supercore.inflatable.inflatable_object:get_all_nested_objects": "obj",
    "flwr.supercore.inflatable.inflatable_object:get_object_tree": "obj",
    "flwr.supercore.inflatable.inflatable_object:iterate_object_tree": "tree",
    "flwr.supercore.inflatable.inflatable_object:no_object_id_recompute": "",
    "flwr.supercore.inflatable.inflatable_utils:inflate_object_from_contents": "object_id object_contents",
    "flwr.supercore.primitives.asymmetric:public_key_to_bytes": "public_key",
    "flwr.supercore.run:Run.create_empty": "run_id",
    "flwr.supernode.fleet_http_client:FleetHttpClient.from_server_address": "server_address insecure "
    "root_certificates interceptors",
    **{f"flwr.supernode.fleet_http_client:FleetHttpClient.{name}": "self request" for name in _REQUESTS},
    "flwr.supernode.node_auth_http_interceptor:NodeAuthHttpInterceptor": "private_key public_key",
    "flwr.superlink.grid:HttpGrid": "runtime_api_address insecure token",
    "flwr.superlink.grid:HttpGrid.set_run": "self run",
    "flwr.superlink.grid:HttpGrid.get_nodes": "self",
    "flwr.superlink.grid:HttpGrid.push_messages": "self messages",
    "flwr.superlink.grid:HttpGrid.pull_messages": "self message_ids",
    "flwr.superlink.grid.http_grid:pull_objects": "initial_backoff",
    "flwr.superlink.main:create_app": "config superlink_lifespan_class",
    "flwr.superlink.config_loader:SuperLinkLifespanConfig": "control_address host port superexec_auth_secret "
    "authn_plugin enable_event_log enable_supernode_auth fleet_api_type simulation database isolation "
    "runtime_dependency_install",
    "flwr.superlink.config_loader:load_control_authn_plugin": "",
    _STATE + "create_node": "self owner_aid owner_name public_key heartbeat_interval name",
    _STATE + "activate_node": "self node_id heartbeat_interval",
    _STATE + "deactivate_node": "self node_id",
    _STATE + "create_run": "self",
    _STATE + "get_run_info": "self run_ids",
    _STATE + "get_run_status": "self run_ids",
    _STATE + "claim_task": "self task_id",
    _STATE + "activate_task": "self task_id",
    _STATE + "finish_task": "self task_id sub_status details",
    _STATE + "acknowledge_task_heartbeat": "self task_id",
}
"""``module:name`` → parameters that are passed to it."""
FIELDS = {
    "flwr.proto.fleet_pb2:ActivateNodeRequest": "public_key heartbeat_interval",
    "flwr.proto.fleet_pb2:DeactivateNodeRequest": "node_id",
    "flwr.proto.fleet_pb2:PullMessagesRequest": "node",
    "flwr.proto.fleet_pb2:PullMessagesResponse": "messages_list message_object_trees",
    "flwr.proto.fleet_pb2:PushMessagesRequest": "node messages_list message_object_trees",
    "flwr.proto.fleet_pb2:PushMessagesResponse": "objects_to_push session_id",
    "flwr.proto.heartbeat_pb2:SendNodeHeartbeatRequest": "node heartbeat_interval",
    "flwr.proto.message_pb2:ConfirmMessageReceivedRequest": "node run_id message_object_id",
    "flwr.proto.message_pb2:PullObjectRequest": "node run_id object_id",
    "flwr.proto.message_pb2:PullObjectResponse": "object_found object_available object_content",
    "flwr.proto.message_pb2:PushObjectRequest": "node run_id object_id object_content session_id",
}
"""``module:message`` → fields that are read or written."""


def _found(name: str) -> object:
    module, _, path = name.partition(":")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", [*CALLED, *FIELDS])
def test_flower_has_the_internals_that_fedlit_uses(name: str) -> None:
    why = f"{name}: fedlit/institutions/flower.py was written for flwr {FLOWER}, and this release has changed it: "
    try:
        found = _found(name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{why}{error}")
    if name in FIELDS:
        known, wanted = set(found.DESCRIPTOR.fields_by_name), set(FIELDS[name].split())  # type: ignore[attr-defined]
    else:
        known, wanted = set(inspect.signature(found).parameters), set(CALLED[name].split())  # type: ignore[arg-type]
    assert wanted <= known, f"{why}expected {sorted(wanted - known)}, found {sorted(known)}"


def test_one_file_imports_flower() -> None:
    own = Path(fedlit.__file__).parent
    using = {
        str(path.relative_to(own))
        for path in own.rglob("*.py")
        if re.search(r"^\s*(from|import) flwr\b", path.read_text(), re.MULTILINE)
    }
    assert using == {"institutions/flower.py"}

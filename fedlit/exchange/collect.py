"""What clients send: before training, and in each exchange."""

from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.client.client import has_hook
from fedlit.client.hooks import hook_of
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.rule import Update
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, form_of
from fedlit.slices import Detached


def planned(client: FederatedClient, seed: int) -> dict[str, Tensor]:
    """Return what a client publishes before training.

    Raises:
        ConfigError: a tensor is not of a floating-point type.
    """
    with isolated_rng(derive_seed(seed, "publish", client.spec.name)), hook_of(client, "publish"):
        published = dict(client.publish())
    for key, value in published.items():
        if not value.is_floating_point():
            raise ConfigError(
                f"client {client.spec.name!r}: expected floating-point tensors from publish, found "
                f"{key} of {value.dtype}; convert it"
            )
    return published


def collect(
    client: FederatedClient,
    sharing: Sharing,
    expected: State,
    seed_of_run: int,
    number: int,
    *,
    begin: bool,
) -> Update:
    """Collect what a client sends, and check it against the plan.

    Args:
        client: the client.
        sharing: which tensors of each client are federated.
        expected: what it publishes, according to the plan.
        seed_of_run: the run's seed, by which its hooks draw numbers.
        number: the number of exchanges before this one.
        begin: whether training has not begun.

    Raises:
        RunError: a private tensor would be sent, or other tensors were published than planned.
    """
    name = client.spec.name
    published: State = {}
    # Most classes have neither hook, and seeding generators takes longer than all the rest.
    if has_hook(client, "on_send") or has_hook(client, "publish"):
        seed = derive_seed(seed_of_run, "send", name, number)
        with isolated_rng(seed, client.device):
            if not begin:
                with hook_of(client, "on_send"):
                    client.on_send(client.steps_taken)
            with hook_of(client, "publish"):
                published = client.publish()
    state = Detached(client._federated)
    if state.live.names != sharing.names[name]:
        private = sorted(set(state) - set(sharing.names[name]))
        if private:
            raise RunError(
                f"client {name!r}: expected only federated tensors in an exchange, found "
                f"{private}; this is a defect, please report it"
            )
    if published or expected:
        forms = {key: form_of(value) for key, value in published.items()}
        planned_forms = {key: form_of(value) for key, value in expected.items()}
        if forms != planned_forms:
            raise RunError(
                f"client {name!r}: expected publish to give what it gave for the plan, "
                f"{planned_forms}, found {forms}; give tensors of the same names, types and shapes "
                "each time"
            )
    rows = client.spec.rows["train"]
    parameters = sharing.parameters[name]
    return Update(state, rows, published, parameters=parameters, steps=client.steps_taken)

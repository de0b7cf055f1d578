"""Names of version 0.1 can still be imported and written into a configuration, with a warning where they have moved."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import fedlit
from fedlit.moved import MOVED

NAMES = {
    "fedlit.aggregation": ("Rule", "Update", "Mean", "FedGMCC"),
    "fedlit.aggregation.clustered": ("Clustered", "Grouping"),
    "fedlit.aggregation.mean": ("Mean",),
    "fedlit.aggregation.rule": ("Rule", "Update"),
    "fedlit.callbacks": ("Exchange", "Checkpoints"),
    "fedlit.callbacks.exchange": ("Exchange",),
    "fedlit.cli": ("load",),
    "fedlit.client": ("FederatedClient",),
    "fedlit.data.column_split": ("ColumnSplit",),
    "fedlit.data.concept": ("ConceptShift",),
    "fedlit.data.dealing": ("ByColumn", "Dirichlet", "Distance", "Iid", "Shards"),
    "fedlit.data.module": ("FederatedData",),
    "fedlit.data.mutations": ("Mutation",),
    "fedlit.data.partition": ("Partition",),
    "fedlit.loop": ("FederatedLoop",),
    "fedlit.run": ("Run",),
    "fedlit.together": ("fit_together", "fit_seeds"),
}


@pytest.mark.parametrize("module", NAMES)
def test_an_old_module_has_what_it_had(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module in MOVED:
        monkeypatch.delitem(sys.modules, module, raising=False)
        with pytest.warns(FutureWarning, match=rf"{module} is called fedlit\..* now; import that"):
            old = importlib.import_module(module)
    else:
        old = importlib.import_module(module)
    for name in NAMES[module]:
        assert getattr(old, name) is getattr(fedlit, name)


@pytest.mark.parametrize("module", MOVED)
def test_every_old_module_is_somewhere(module: str) -> None:
    assert not any(Path(fedlit.__file__).parent.glob(f"{module.removeprefix('fedlit.').replace('.', '/')}*.py"))
    for home in MOVED[module]:
        assert home not in MOVED and importlib.import_module(home).__name__ == home


def test_a_name_that_no_version_had_is_refused_as_ever() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Ruler'"):
        from fedlit.aggregation import Ruler  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'fedlit\.aggregations'"):
        importlib.import_module("fedlit.aggregations")


OLD = """\
data:
  source:
    class_path: fedlit.data.partition.Partition
    init_args:
      source: {class_path: fedlit.data.sources.Bundled, init_args: {clients: [wine]}}
      clients: 2
      deal: {class_path: fedlit.data.dealing.Iid}
model:
  client:
    class_path: fedlit.methods.fedprox.FedProx
    init_args: {network: {class_path: fedlit.nn.mlp.MLP}, mu: 0.1}
  optimizer: {class_path: torch.optim.Adam}
exchange: {federated: [core], rule: {class_path: fedlit.aggregation.mean.Mean, init_args: {weights: rows}}}
"""


def test_old_modules_in_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fedlit.data.partition", "fedlit.data.dealing", "fedlit.aggregation.mean"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "old.yaml").write_text(OLD, encoding="utf-8")
    with pytest.warns(FutureWarning, match="fedlit.aggregation.mean is called fedlit.exchange.rules.mean now"):
        run = fedlit.load(str(tmp_path / "old.yaml"))
    assert isinstance(run.data.source, fedlit.Partition) and isinstance(run.data.source.deal, fedlit.Iid)
    assert isinstance(run.exchange.rule, fedlit.Mean)
    run.describe()
    assert all(isinstance(client, fedlit.FedProx) for client in run.loop.federation.values())

"""Somebody else's file may name the classes of one list, and nothing else is imported."""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import hostile
import pytest
import yaml

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule
from fedlit.mixture.written import settings_of
from fedlit.run.allowed import allowed, check_allowed, import_trusted, trusting
from fedlit.run.arguments import read
from fedlit.run.config import find_config, parse_yaml, read_settings, read_yaml
from fedlit.run.load import parse

LIST = Path(__file__).parents[2] / "fedlit" / "run" / "allowed.json"
CONFIGS = Path(__file__).parents[2] / "configs"
ROOMS = {
    "model": ("fedlit.nn", "fedlit.methods", "fedlit.client"),
    "rule": ("fedlit.exchange.rules",),
    "source": ("fedlit.data.sources", "fedlit.data.shaping", "fedlit.data.shaping.derived"),
    "callbacks": ("fedlit.train.callbacks",),
}


CALLBACKS = (
    "DeviceStatsMonitor", "EarlyStopping", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary",
    "RichModelSummary", "RichProgressBar", "TQDMProgressBar", "Timer",
)  # fmt: skip
LOGGERS = ("CSVLogger", "MLFlowLogger", "TensorBoardLogger", "WandbLogger")


def classes_of(module: Any, base: type) -> dict[str, Any]:
    found = {
        name: own
        for name, own in vars(module).items()
        if inspect.isclass(own) and issubclass(own, base)
    }
    return {name: own for name, own in found.items() if not name.startswith("_")}


def offered(room: str) -> list[str]:
    module = importlib.import_module(room)
    own = [name for name, made in vars(module).items() if getattr(made, "__module__", "") == room]
    return list(getattr(module, "__all__", own))


def generated() -> dict[str, list[str]]:
    """The list, from what the packages have; ``python tests/run/test_allowed.py`` writes it."""
    import torch
    from torch import nn
    from torch.optim import lr_scheduler

    found: dict[str, set[str]] = {
        kind: set() for kind in (*ROOMS, "optimizer", "scheduler", "logger")
    }
    for kind, rooms in ROOMS.items():
        homes = {(room, name) for room in rooms for name in offered(room)}
        for name in dir(fedlit):
            home = getattr(fedlit, name).__module__
            homes |= {
                (own, name) for room in rooms if home.startswith(room) for own in (room, home)
            }
        homes = {
            (home, name) for home, name in homes if hasattr(importlib.import_module(home), name)
        }
        for home, name in homes:
            made = getattr(importlib.import_module(home), name)
            if inspect.isclass(made):
                short = {f"fedlit.{name}"} if name in dir(fedlit) else set()
                found["rule" if issubclass(made, Rule) else kind] |= {
                    f"{home}.{name}",
                    f"{made.__module__}.{name}",
                    *short,
                }
    found["model"] |= {f"torch.nn.{name}" for name in classes_of(nn, nn.Module)}
    found["optimizer"] = {
        f"torch.optim.{name}" for name in classes_of(torch.optim, torch.optim.Optimizer)
    }
    found["optimizer"] -= {"torch.optim.Optimizer"}
    schedulers = classes_of(lr_scheduler, lr_scheduler.LRScheduler)
    found["scheduler"] = {
        f"torch.optim.lr_scheduler.{name}"
        for name, own in schedulers.items()
        if own is not lr_scheduler.LRScheduler
        and not {"lr_lambda", "schedulers"} & {*inspect.signature(own).parameters}
    }
    found["scheduler"] |= {"lightning.pytorch.cli.ReduceLROnPlateau"}
    for kind, home, names in (
        ("callbacks", "lightning.pytorch.callbacks", CALLBACKS),
        ("logger", "lightning.pytorch.loggers", LOGGERS),
    ):
        for name in names:
            made = getattr(importlib.import_module(home), name)
            found[kind] |= {f"{home}.{name}", f"{made.__module__}.{name}"}
    for path in CONFIGS.rglob("*.yaml"):
        for callback in (read_yaml(path).get("trainer") or {}).get("callbacks") or []:
            home, _, name = callback["class_path"].rpartition(".")
            made = getattr(importlib.import_module(home), name)
            found["callbacks"] |= {callback["class_path"], f"{made.__module__}.{name}"}
    return {kind: sorted(names) for kind, names in sorted(found.items())}


def test_the_list_is_the_one_that_is_generated() -> None:
    assert json.loads(LIST.read_text(encoding="utf-8")) == generated()


def test_shipped_configurations_name_nothing_else() -> None:
    for path in [*CONFIGS.glob("*.yaml"), *CONFIGS.glob("methods/*.yaml")]:
        if "mixture" not in read_settings(path):
            check_allowed(read_settings(path), path.name)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a copied run, as far as configurations are concerned."""
    folder = tmp_path / "copied" / "version_0"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(find_config("quickstart").read_text(encoding="utf-8"))
    return folder


@pytest.fixture
def canary(tmp_path: Path, run: Path) -> Path:
    """A file that nobody may make."""
    path = tmp_path / "canary"
    hostile.plant(run, path)
    hostile.plant(Path.cwd(), path)
    return path


def written(run: Path, change: tuple[str, Any], canary: Path) -> Path:
    config = run / "config.yaml"
    content = hostile.put(read_yaml(config), *change, run, canary)
    config.write_text(yaml.safe_dump(content, sort_keys=False))
    return config


def test_what_could_run_is_refused_by_name(run: Path, canary: Path) -> None:
    config = run / "config.yaml"
    good = config.read_text()
    for change in hostile.REFUSED.values():
        config.write_text(good)
        with pytest.raises(
            ConfigError, match=rf"config\.yaml: {change[0].partition('.')[0]}.*expected .*--trust"
        ):
            read("fit", ["--config", str(written(run, change, canary))])
    for text in hostile.TEXTS.values():
        config.write_bytes(text(good))
        with pytest.raises(ConfigError, match=r"config\.yaml"):
            read("describe", ["--config", str(config)])
    assert not canary.exists() and "sideeffect" not in sys.modules


@pytest.mark.full
def test_the_parser_itself_imports_nothing_else(
    run: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second barrier, with the first one open."""
    monkeypatch.setattr("fedlit.run.allowed._check", lambda *_: None)
    for name, change in hostile.REFUSED.items():
        (run / "config.yaml").write_bytes(find_config("quickstart").read_bytes())
        if "writes" in name:
            continue  # Lightning's own callbacks and loggers, which the first barrier refuses
        asked = read("fit", ["--config", str(written(run, change, canary))])
        try:
            made, _ = parse(asked)
            made.describe()
        except Exception:  # whatever it is: nothing ran
            pass
        assert not canary.exists() and "sideeffect" not in sys.modules, change


def test_explaining_a_refusal_imports_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of parts, and a table beside a script of the same name, look like a class in a
    module."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("sites.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("federated: [core]", "federated: sites.Core"))
    tables = [
        "--data.source=fedlit.Tables",
        "--data.source.files={a: sites.CSV}",
        "--data.source.target=y",
    ]
    for words in (["--config", str(config)], ["--config", "quickstart", *tables, "--seed=eight"]):
        with pytest.raises(ConfigError, match=r"federated: expected list|seed: expected integer"):
            parse(read("describe", words))
    assert not Path("imported").exists()


def test_a_database_is_named_by_the_beginning_of_its_url(run: Path, canary: Path) -> None:
    config = str(
        written(
            run, ("data.source.files", {"a": {"path": "sqlite:///own.db", "query": "rows"}}), canary
        )
    )
    with pytest.raises(ConfigError, match=r"expected tables of your own.*: --trust sqlite$"):
        read("describe", ["--config", config])
    with trusting("sqlite"):
        assert read("describe", ["--config", config]).foreign


def test_a_class_of_ones_own_is_named_by_file_or_module(run: Path, canary: Path) -> None:
    network = ("model.client.init_args.network", {"class_path": "mine.Net"})
    config = written(run, network, canary)
    Path("mine.py").write_text("from fedlit.nn import MLP\nclass Net(MLP): ...\n")
    with pytest.raises(ConfigError, match=r"found 'mine\.Net'"):
        read("describe", ["--config", str(config)])
    for wrong in ("mi", "mine.Net.x", "other"):
        with trusting(wrong), pytest.raises(ConfigError, match=r"found 'mine\.Net'"):
            read("describe", ["--config", str(config)])
    with trusting("mine"):
        assert read("describe", ["--config", str(config)]).foreign == [config]
    own = Path("own.yaml")
    own.write_text(
        yaml.safe_dump(
            {"model": {"client": {"init_args": {"network": {"class_path": "mine.Net"}}}}}
        )
    )
    made, _ = parse(read("describe", ["--config", str(config), "--config", str(own)]))
    assert "Net" in str(made.loop.arguments["client"])
    sys.modules.pop("mine", None)


def test_a_module_beside_a_copied_run_takes_no_others_place(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "openpyxl.py").write_text("raise SystemExit('read')")
    monkeypatch.chdir(run)
    sys.path[:0] = ["", str(run)]
    with trusting("mine"):
        (run / "mine.py").write_text("raise SystemExit('read')")
        config = written(
            run, ("model.client.init_args.network", {"class_path": "mine.Net"}), run / "canary"
        )
        with pytest.raises(ConfigError, match=r"mine"):
            parse(read("describe", ["--config", str(config)]))


def test_links_out_of_a_copied_run_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (run / "test.csv").symlink_to(tmp_path / "precious")
    with pytest.raises(
        ConfigError, match=r"test\.csv: expected a file or a folder, found a link to .*precious"
    ):
        read("describe", ["--config", str(run / "config.yaml")])


def test_a_copied_mixture_takes_its_parts_from_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "copied" / "version_0"
    (folder / "parts" / "network").mkdir(parents=True)
    (folder / "parts" / "network" / "config.yaml").write_bytes(
        find_config("quickstart").read_bytes()
    )
    part = {"config": "parts/network/config.yaml"}
    for other in (
        {"config": str(find_config("quickstart"))},
        {**part, "set": {"exchange.rule": "os.system"}},
    ):
        (folder / "config.yaml").write_text(
            yaml.safe_dump({"mixture": {"parts": {"network": other}}})
        )
        with pytest.raises(ConfigError, match=r"parts\.network: expected config: "):
            settings_of(folder / "config.yaml")


SITE = """
site: wine
coordinator: localhost:8443
data: {source: {class_path: fedlit.Bundled, init_args: {clients: [wine]}}}
"""


def test_a_site_builds_nothing_else_of_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the folder that the invitation lies in."""
    folder = tmp_path / "wine"
    canary = tmp_path / "canary"
    folder.mkdir()
    hostile.plant(folder, canary)
    (folder / "site.yaml").write_text(SITE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as where Python is started with -m
    content = read_yaml(find_config("quickstart"))
    del content["data"]["source"]
    for key, value in hostile.REFUSED.values():
        if key.startswith("model."):
            lie = hostile.put(content, key, value, folder, canary)
            (folder / "federation.yaml").write_text(yaml.safe_dump(lie))
            assert main(["site", "check", "--config", "site.yaml"]) == 2
            assert "model." in capsys.readouterr().err and not canary.exists()


def test_a_kind_is_allowed_under_its_own_keys_alone() -> None:
    assert allowed("fedlit.Krum", "exchange") and not allowed("fedlit.Krum", "model")
    assert not allowed("fedlit.Tables", "model") and not allowed(["fedlit.MLP"], "model")


def test_yaml_that_takes_for_ever_or_is_no_number_is_refused() -> None:
    for text in ("a: " + "[" * 5000, f"a: {'9' * 5000}", "a: 2024-13-45"):
        with pytest.raises(ConfigError, match="expected YAML"):
            parse_yaml(text, "here.yaml")


def test_trusted_modules_are_imported_and_other_words_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fresh_tasks.py").write_text("import claims\n")
    (tmp_path / "torn_tasks.py").write_text("1 / 0\n")
    import_trusted(["fresh_tasks", "postgresql"])  # a module, and a kind of databases
    assert "fresh_tasks" in sys.modules
    with pytest.raises(ConfigError, match="torn_tasks"):
        import_trusted(["torn_tasks"])


if __name__ == "__main__":
    LIST.write_text(json.dumps(generated(), indent=1) + "\n", encoding="utf-8")

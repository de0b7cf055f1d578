"""A run's own configuration is followed where this account signed it, and data elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import hostile
import pytest
import yaml

from fedlit.composite.settings import MixtureSettings, settings_of
from fedlit.data.sources.withheld import Withheld
from fedlit.errors import ConfigError
from fedlit.run.arguments import read
from fedlit.run.config import find_config, parse_yaml, read_yaml
from fedlit.run.foreign import readable
from fedlit.run.load import parse
from fedlit.run.trust import is_signed, key_file, signed, take, trusting, trusts, why_not_signed


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a key, in a folder of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "account"))
    monkeypatch.delenv("FEDLIT_KEY_OF_THIS_PROCESS", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "account"


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


@pytest.mark.parametrize("change", hostile.REFUSED.values(), ids=list(hostile.REFUSED))
def test_what_could_run_is_refused_by_name(run: Path, canary: Path, change: tuple[str, Any]) -> None:
    config = written(run, change, canary)
    with pytest.raises(ConfigError, match=r"config\.yaml: .*expected .*not signed on this account.* found .*--trust"):
        read("describe", ["--config", str(config)])
    assert not canary.exists() and "sideeffect" not in sys.modules


@pytest.mark.parametrize("change", hostile.LEFT_OUT.values(), ids=list(hostile.LEFT_OUT))
def test_what_would_act_elsewhere_is_left_out_and_listed(
    run: Path, canary: Path, change: tuple[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    used = read_yaml(readable(written(run, change, canary)))
    assert f"left out: {change[0]}" in capsys.readouterr().err
    group, key = change[0].split(".")
    assert key not in used[group] and used["exchange"] == read_yaml(run / "config.yaml")["exchange"]


@pytest.mark.parametrize("change", hostile.WITHHELD.values(), ids=list(hostile.WITHHELD))
def test_tables_that_only_it_names_are_not_read(run: Path, canary: Path, change: tuple[str, Any]) -> None:
    made, _ = parse(read("describe", ["--config", str(written(run, change, canary))]))
    assert isinstance(made.data.source, Withheld)
    with pytest.raises(ConfigError, match=r"tables of your own.*--data\.source"):
        made.describe()
    assert not canary.exists() and "sideeffect" not in sys.modules


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=list(hostile.TEXTS))
def test_a_file_that_is_no_configuration_is_refused_in_a_message(run: Path, canary: Path, text: Any) -> None:
    config = run / "config.yaml"
    config.write_bytes(text(config.read_text()))
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read("describe", ["--config", str(config)])
    assert not canary.exists()


@pytest.mark.full
def test_the_parser_itself_imports_nothing_else(run: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second barrier, with the first one open."""
    monkeypatch.setattr("fedlit.run.foreign._check", lambda *_: None)
    for change in hostile.REFUSED.values():
        shutil.copyfile(find_config("quickstart"), run / "config.yaml")
        asked = read("describe", ["--config", str(written(run, change, canary))])
        try:
            made, _ = parse(asked)
            made.describe()
        except Exception:  # whatever it is: nothing ran
            pass
        assert not canary.exists() and "sideeffect" not in sys.modules, change


def test_a_signed_configuration_is_followed_and_a_changed_one_is_not(run: Path) -> None:
    config = run / "config.yaml"
    plain = config.read_text()
    assert not trusts(config)
    config.write_text(signed(plain))
    assert trusts(config) and key_file().stat().st_mode & 0o777 == 0o600
    of_another = signed(plain.replace("seed: 8", "seed: 9")).splitlines()[-1]
    config.write_text(plain + of_another + "\n")
    assert not trusts(config), "the signature of another run"
    config.write_text(signed(plain) + "exchange: {}\n")
    assert not trusts(config), "a line behind the signature"
    config.write_text(signed(plain))
    key_file().write_text("0" * 64)
    assert not trusts(config), "another account's key"


def test_a_key_that_others_can_read_signs_nothing(
    account: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = signed("seed: 8\n")
    key_file().chmod(0o644)
    assert not is_signed(mine)
    for_now = signed("seed: 8\n")
    assert "others can read or change it" in capsys.readouterr().err
    assert is_signed(for_now), "this process and those that it starts go on"
    monkeypatch.delenv("FEDLIT_KEY_OF_THIS_PROCESS")
    assert not is_signed(for_now)


@pytest.mark.skipif(os.name != "posix", reason="homes that are no folder")
def test_without_a_place_for_the_key_there_is_one_line(
    account: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account.write_text("a file")
    assert is_signed(signed("seed: 8\n")) and is_signed(signed("seed: 9\n"))
    assert capsys.readouterr().err.count("not signed for later ones") == 1
    monkeypatch.delenv("FEDLIT_KEY_OF_THIS_PROCESS")


def test_named_classes_are_built_and_no_others(run: Path, canary: Path) -> None:
    config = written(run, ("model.client.init_args.network", {"class_path": "mine.Net"}), canary)
    Path("mine.py").write_text("from fedlit.nn import MLP\nclass Net(MLP): ...\n")
    with trusting("mine.Net"):
        made, _ = parse(read("describe", ["--config", str(config)]))
    assert type(made.describe()).__name__ == "Plan"
    assert "Net" in str(made.loop.arguments["client"])
    with trusting("mine.Other"), pytest.raises(ConfigError, match=r"found mine\.Net"):
        read("describe", ["--config", str(config)])
    with trusting():
        assert readable(config) == config
    sys.modules.pop("mine", None)


def test_a_module_beside_a_copied_run_takes_no_others_place(run: Path) -> None:
    (run / "openpyxl.py").write_text("raise SystemExit('read')")
    parse(read("describe", ["--config", str(run / "config.yaml")]))
    assert str(run) not in sys.path and str(Path.cwd()) not in sys.path


def test_links_out_of_a_copied_run_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (run / "test.csv").symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError, match=r"test\.csv: expected a file or a folder, found a link to .*precious"):
        readable(run / "config.yaml")


def test_a_run_that_was_begun_from_a_foreign_file_is_signed_without_its_instructions(run: Path, tmp_path: Path) -> None:
    config = run / "config.yaml"
    config.write_text(f"# made from {tmp_path / 'evil' / 'x.yaml'}\n{config.read_text()}")
    written(run, hostile.LEFT_OUT["a callback that writes"], tmp_path / "canary")
    made, _ = parse(read("fit", ["--config", str(config)]))
    assert made.config_text is not None
    assert "evil" not in made.config_text and yaml.safe_load(made.config_text)["trainer"]["callbacks"] is None


def test_a_copied_mixture_takes_its_parts_from_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "copied" / "version_0"
    (folder / "parts" / "network").mkdir(parents=True)
    shutil.copyfile(find_config("quickstart"), folder / "parts" / "network" / "config.yaml")
    part = {"config": "parts/network/config.yaml"}
    own = {"mixture": {"parts": {"network": part}}, "trainer": {"default_root_dir": "/elsewhere"}, "name": "../x"}

    def read_back(mixture: Any = None) -> MixtureSettings:
        text = yaml.safe_dump({**own, **({"mixture": {"parts": {"network": mixture}}} if mixture else {})})
        (folder / "config.yaml").write_text(text)
        return settings_of(folder / "config.yaml")

    settings = read_back()
    assert (str(settings.root), settings.name) == ("lightning_logs", "config")
    for other in ({"config": str(find_config("quickstart"))}, {**part, "set": {"exchange.rule": "os.system"}}):
        with pytest.raises(ConfigError, match=r"parts\.network: expected config: .*not signed on this account"):
            read_back(other)


@pytest.mark.parametrize("typed", [["--trust", "os"], ["--trust=a b"], ["--trust", "x.y;z"]])
def test_what_is_trusted_is_a_class(typed: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--trust: expected nothing behind it, or classes"):
        take(typed)


def test_a_key_that_others_can_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDLIT_KEY_OF_THIS_PROCESS", raising=False)
    text = signed("seed: 8")
    assert is_signed(text) and "was copied" in why_not_signed()
    key_file().chmod(0o644)
    assert not is_signed(text)
    assert "chmod 600" in why_not_signed()


def test_yaml_that_would_take_for_ever_or_has_no_number_is_refused() -> None:
    for text in ("a: " + "[" * 5000, f"a: {'9' * 5000}", "a: 2024-13-45"):
        with pytest.raises(ConfigError, match="expected YAML"):
            parse_yaml(text, "here.yaml")

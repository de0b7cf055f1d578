"""What a beginner mistypes: exit status 2, one message that names the key and what may have been meant. At once
where no class has to be known, else before data is read.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from elsewhere import light

from fedlit.__main__ import main
from fedlit.cli.commands import COMMANDS
from fedlit.run.config import find_config
from fedlit.run.keys import FILE
from fedlit.run.load import keys_of_parser

Q = ["fit", "--config", "quickstart"]

# Other libraries' words.
FOREIGN = re.compile(
    r"jsonargparse|Parser key|[Ss]ubtypes|Namespace\(|Traceback|<class|typing\.|lightning_fabric|argument "
)

FILES = {
    "tab.yaml": "seed: 8\ndata:\n\tbatches: 3\n",
    "empty.yaml": "",
    "twice.yaml": "seed: 8\nseed: 9\n",
    "group.yaml": "exchnge: {every: step}\n",
    "key.yaml": "trainer: {max_epoch: 3}\n",
    "class.yaml": "model: {client: {class_path: fedlit.FederatedCleint}}\n",
    "study.yaml": "methods: {local: {config: quickstart}}\nseeds: 1\n",
    "methds.yaml": "methds: {}\nseeds: 1\n",
    "sett.yaml": "seeds: 1\nmethods: {local: {config: quickstart, sett: {a: 1}}}\n",
    "evry.yaml": "seeds: 1\nmethods: {local: {config: quickstart, set: {exchange.evry: step}}}\n",
    "core.yaml": "seeds: 1\nmethods: {core: {config: quickstart}}\n",
    "space.yaml": "seeds: 1\nmethods: {local: {config: quickstart}}\nsearch: {method: local, space: {x.y: {low: 1}}}\n",
}

# Answered without torch: command → what its message names, and what may have been meant.
LIGHT = """
ftt --config quickstart | 'ftt' | 'fit'
--verison | '--verison' | '--version'
fit | --config NAME
fit quikstart | --config quikstart: | 'quickstart'
fit --confg quickstart | --confg: | '--config'
fit --config . | --config .:
fit --config covertype | fedlit compare covertype
fit --config tab.yaml | tab.yaml, line 3:
fit --config empty.yaml | empty.yaml:
fit --config twice.yaml | twice.yaml: | 'seed' | line 2
fit --config group.yaml | group.yaml: exchnge: | 'exchange'
fit --config key.yaml | key.yaml: trainer.max_epoch: | 'trainer.max_epochs'
fit --config class.yaml | class.yaml: model.client: | 'fedlit.FederatedClient'
fit --config study.yaml | study.yaml: | fedlit compare study.yaml
fit --config quickstart --config quickstart | --config quickstart:
fit --config quickstart --lr 0.1 | --lr: | '--model.optimizer.lr'
fit --config quickstart --max_epochs 3 | --max_epochs: | '--trainer.max_epochs'
fit --config quickstart --trainer 3 | --trainer: | --trainer.accelerator | '3'
fit --config quickstart --model.client fedlit.FedPrx | --model.client: | 'fedlit.FedProx'
fit --config quickstart --ckpt_path lst | --ckpt_path: | lst
test --config quickstart | fit
describe --config quickstart --format jsn | --format: | 'json'
compare quikstart | study quikstart: | 'quickstart'
compare key.yaml | key.yaml: | fedlit fit
compare methds.yaml | methds.yaml: methds: | 'methods'
compare sett.yaml | sett.yaml: methods.local.sett | 'set'
compare evry.yaml | evry.yaml: methods.local.set.exchange.evry: | 'exchange.every'
compare core.yaml | core.yaml: reference:
search space.yaml | space.yaml: search.space.x.y:
compare quickstart --seed 3 | --seed | '--seeds'
compare quickstart --methods gll | --methods: | 'gl'
data fetsh heart | 'fetsh' | 'fetch'
"""

# Answered by types, before data is read: what follows fit --config quickstart → what the message names.
TYPED = """
--seed eight | --seed: | 'eight'
--exchange.every epcoh | --exchange.every: | 'epoch'
--exchange.every '{epoch: 5}' | exchange.every: | 'epochs'
--exchange.rule fedlit.IFCA --exchange.rule.clusters 0 | exchange.rule: IFCA: clusters: | 0
--exchange.rule lacks_own.Lacks | --exchange.rule: | 'lacks_own.Lacks' | __call__
--exchange.rule.weights many | --exchange.rule.weights: | 'uniform', 'rows' | 'many'
--exchange.federated core | --exchange.federated: | [core]
--model.client FedPrx | --model.client: | 'fedlit.FedProx'
--model.client fedlit.FedProx --model.client.mue 1 | --model.client.mue: | 'mu'
--model.client broken_own.Mine | --model.client: | ZeroDivisionError | broken_own.py, line 2
--model.client wrong_own.Mine | --model.client: | SyntaxError | line 1
--model.client imports_own.Mine | --model.client: | nothing_there | imports_own.py, line 1
--exchange.rule broken_own.Mine | --exchange.rule: | ZeroDivisionError | broken_own.py, line 2
--model.optimizer torch.optim.Adamm | --model.optimizer: | 'torch.optim.Adam'
--model.optimizer.lr fast | --model.optimizer.lr: | float | 'fast'
--data.source fedlit.Tables --data.source.target y | --data.source: | files
--trainer.logger CSVLoger | --trainer.logger: | 'CSVLogger'
--trainer.callbacks EarlyStopping | --trainer.callbacks: | monitor
--trainer.accelerator gpuu | trainer.accelerator: | 'gpuu' | cpu
--trainer.devices 2 | trainer.devices: | torchrun
--trainer.fast_dev_run true | trainer.fast_dev_run: | limit_train_batches
"""

# The same in a file: what stands in quickstart.yaml → what is written in its place, and what the message names.
WRITTEN = [
    ("every: epoch", "every: epcoh", ["own.yaml: exchange.every:", "'epoch'"]),
    ("lr: 0.001", "lrr: 0.001", ["own.yaml: model.optimizer.lrr:", "'lr'"]),
    ("class_path: fedlit.MLP", "classpath: fedlit.MLP", ["own.yaml: model.client.network:"]),
]


def rows_of(table: str) -> list[tuple[list[str], list[str]]]:
    """Lines such as ``words | name | name`` → (words, names)."""
    lines = [line.split(" | ") for line in table.strip().splitlines()]
    return [(shlex.split(words), names) for words, *names in lines]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_misspelt_is_said_without_torch(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    commands = rows_of(LIGHT)
    told = light([words for words, _ in commands], tmp_path, "pandas", "sklearn")
    for (words, names), (status, _, message) in zip(commands, told, strict=True):
        assert status == 2, words
        one_message(message, names)
    assert not (tmp_path / "lightning_logs").exists()


def one_message(message: str, names: list[str]) -> None:
    assert message.count("fedlit: error:") == 1 and message.startswith("fedlit: error:"), message
    assert message.count("\n") == 1 and not FOREIGN.search(message), message
    assert all(name in message for name in names), (message, names)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table may be read."""
    from fedlit.data.sources import Bundled, Tables

    for source in (Bundled, Tables):
        monkeypatch.setattr(source, "tables", lambda *_: pytest.fail("data was read"))


def test_values_are_held_against_types_before_data_is_read(
    here: Path, no_data: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken_own.py").write_text("import fedlit\nx = 1 / 0\n")
    (here / "wrong_own.py").write_text("def f(:\n")
    (here / "imports_own.py").write_text("import nothing_there\n")
    (here / "lacks_own.py").write_text("import fedlit\nclass Lacks(fedlit.Rule):\n    def call(self, round): ...\n")
    for args, names in rows_of(TYPED):
        assert main([*Q, *args]) == 2, args
        one_message(capsys.readouterr().err, names)
    quickstart = find_config("quickstart").read_text()
    for known, wrong, names in WRITTEN:
        assert known in quickstart
        (here / "own.yaml").write_text(quickstart.replace(known, wrong))
        assert main(["fit", "--config", "own.yaml"]) == 2, wrong
        one_message(capsys.readouterr().err, names)
    assert not (here / "lightning_logs").exists()


def test_a_score_that_nobody_logs_is_refused_before_the_first_step(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = ["--trainer.callbacks", "EarlyStopping", "--trainer.callbacks.monitor"]
    for args in (["--checkpoint.monitor"], stopping):
        for wrong, meant in (("loss", "val/loss"), ("wine/auroc", "wine/val/auroc"), ("val/aurocc", "val/auroc")):
            assert main([*Q, *args, wrong]) == 2
            message = capsys.readouterr().err
            assert re.search(f"expected a score .*found {wrong}. Did you mean '{meant}'", message), message
    assert not list(here.glob("lightning_logs/*/version_*"))
    assert main([*Q, *stopping, "train/losss"]) == 1  # what is logged in training is known when it is logged
    assert "monitor: expected what is logged" in capsys.readouterr().err


def test_the_list_of_keys_is_that_of_the_parser(here: Path) -> None:
    assert json.loads(FILE.read_text()) == keys_of_parser()


def test_all_help_fits_80_columns_and_colour_comes_with_a_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    own = ("fit", "describe", "validate", "test", "predict")  # of those the whole parser: tests/run/test_help.py
    for line in ["", "--help", "site", *(f"{name} --help" for name in COMMANDS if name not in own)]:
        with suppress(SystemExit):
            assert main(line.replace(" --run", " --run x").split()) == 0
        told = capsys.readouterr()
        assert told.out and not told.err and max(map(len, told.out.splitlines())) <= 80, line
        assert "python -m" not in told.out and "\x1b" not in told.out
    master, slave = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"COLUMNS": "80", "TERM": "xterm"}
    subprocess.run([sys.executable, "-m", "fedlit", "--sed"], stdout=slave, stderr=slave, stdin=slave, env=env)
    assert b"\x1b[31mfedlit: error:" in os.read(master, 65536)


def test_two_configurations_are_put_together_and_found_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "more.yaml").write_text("trainer: {max_epochs: 1, limit_train_batches: 2}\n")
    both = ["--config", "quickstart", "--config", "more.yaml"]
    assert main(["fit", *both]) == 0
    told = capsys.readouterr()
    assert "Settings of quickstart.yaml, changed by more.yaml; runs are called quickstart+more\n" in told.err
    assert "limit_train_batches is 2: epochs are shorter than the plan says" in told.out
    assert "test --config quickstart --config more.yaml" in told.out
    assert main(["test", *both]) == 0
    assert "quickstart+more/version_0" in capsys.readouterr().err
    assert main(["test", "--config", "quickstart"]) == 2
    assert "expected a trained run" in capsys.readouterr().err

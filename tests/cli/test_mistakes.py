"""What a beginner mistypes: exit status 2, one message that names the key and what may have been
meant. At once where no class has to be known, else before data is read.
"""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from elsewhere import light, mistakes

from fedlit.__main__ import main
from fedlit.cli.commands import COMMANDS
from fedlit.run.config import find_config

Q = ["fit", "--config", "quickstart"]

# Other libraries' words.
FOREIGN = re.compile(
    r"jsonargparse|Parser key|[Ss]ubtypes|Namespace\(|Traceback|<class|typing\.|lightning_fabric|argument "
)


def test_what_is_misspelt_is_said_without_torch(tmp_path: Path) -> None:
    for name, content in yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())[
        "files"
    ].items():
        (tmp_path / name).write_text(content)
    commands = mistakes("light")
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
    (here / "lacks_own.py").write_text(
        "import fedlit\nclass Lacks(fedlit.Rule):\n    def call(self, round): ...\n"
    )
    for words, names in mistakes("typed"):
        assert main(words) == 2, words
        one_message(capsys.readouterr().err, names)
    # the same in a file, which is named too
    (here / "own.yaml").write_text(
        find_config("quickstart").read_text().replace("every: epoch", "every: epcoh")
    )
    assert main(["fit", "--config", "own.yaml"]) == 2
    one_message(capsys.readouterr().err, ["own.yaml: exchange.every:", "'epoch'"])
    assert not (here / "lightning_logs").exists()


def test_a_score_that_nobody_logs_is_refused_before_training(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = ["--trainer.callbacks", "EarlyStopping", "--trainer.callbacks.monitor"]
    for args in (["--checkpoint.monitor"], stopping):
        for wrong, meant in (
            ("loss", "val/loss"),
            ("west/auroc", "west/val/auroc"),
            ("val/aurocc", "val/auroc"),
        ):
            assert main([*Q, *args, wrong]) == 2
            message = capsys.readouterr().err
            assert re.search(
                f"expected a score .*found {wrong}. Did you mean '{meant}'", message
            ), message
    assert not list(here.glob("lightning_logs/*/version_*"))
    # of which it is not known whether more is better
    assert main([*Q, *stopping, "train/losss"]) == 2
    assert "found train/losss" in capsys.readouterr().err


def test_help_fits_80_columns_and_has_colour_on_a_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    # of those the whole parser: tests/run/test_keys.py
    own = ("fit", "describe", "validate", "test", "predict")
    for line in ["", "--help", "site", *(f"{name} --help" for name in COMMANDS if name not in own)]:
        with suppress(SystemExit):
            assert main(line.replace(" --run", " --run x").split()) == 0
        told = capsys.readouterr()
        assert told.out and not told.err and max(map(len, told.out.splitlines())) <= 80, line
        assert "python -m" not in told.out and "\x1b" not in told.out
    master, slave = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {
        "COLUMNS": "80",
        "TERM": "xterm",
    }
    subprocess.run(
        [sys.executable, "-m", "fedlit", "--sed"], stdout=slave, stderr=slave, stdin=slave, env=env
    )
    assert b"\x1b[31mfedlit: error:" in os.read(master, 65536)


def test_two_configurations_are_put_together_and_found_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "more.yaml").write_text("trainer: {max_epochs: 1, limit_train_batches: 2}\n")
    both = ["--config", "quickstart", "--config", "more.yaml"]
    assert main(["fit", *both]) == 0
    told = capsys.readouterr()
    assert "more.yaml; runs are called quickstart+more\n" in told.err
    assert "test --config quickstart --config more.yaml" in told.out
    assert main(["test", *both]) == 0
    told = capsys.readouterr()
    assert (
        "configuration lightning_logs/quickstart+more/version_0" in told.err
        and "Reading" not in told.err
    )
    assert main(["test", "--config", "quickstart"]) == 2
    assert "expected a trained run" in capsys.readouterr().err

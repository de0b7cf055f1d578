"""``fedlit fit --help``, as the command prints it, and the page of all keys."""

import re
from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.run.help import SHOWN, keys_markdown
from fedlit.run.keys import GROUPS
from fedlit.run.load import _parser

MARKUP = re.compile(r"`|:(class|func|mod|meth|attr|data):")
PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
FIRST = "## The run\n"


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80 and not MARKUP.search(told)
    return told


def keys_of(text: str) -> set[str]:
    return set(re.findall(r"^  --([\w.]+)", text, re.MULTILINE)) - {"help"}


def test_the_keys_that_matter_then_all_then_a_group_a_key_and_a_class(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    everything = keys_of(help_of(capsys, "fit", "--help", "all"))
    assert len(everything) > 80 and {key.partition(".")[0] for key in everything if "." in key} == set(GROUPS)
    for command, shown in SHOWN.items():
        assert keys_of(help_of(capsys, command, "--help")) == set(shown)
    assert keys_of(help_of(capsys, "describe", "--help=exchange")) == {k for k in everything if k[:9] == "exchange."}
    assert keys_of(help_of(capsys, "fit", "--help", "data.steps")) == {"data.steps"}
    assert "--data.source.target" in help_of(capsys, "fit", "--data.source.help=fedlit.Tables")
    assert main(["fit", "--help", "exchang"]) == 2
    assert "Did you mean 'exchange'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fit", "--config", "quickstart", "--seed", "9", "--print_config"])
    assert "seed: 9" in capsys.readouterr().out


def test_the_page_of_all_keys_has_those_of_the_parser() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(f"{keys_markdown(_parser())}\n"), f"run python {__file__}"


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(FIRST)[0]
    PAGE.write_text(f"{head}{keys_markdown(_parser())}\n", encoding="utf-8")

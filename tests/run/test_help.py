"""``fedlit fit --help``, as the command prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.run.help import SHOWN, keys_markdown
from fedlit.run.keys import GROUPS
from fedlit.run.load import _parser

MARKUP = re.compile(r"`|:(class|func|mod|meth|attr|data):")


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
        brief = help_of(capsys, command, "--help")
        assert keys_of(brief) == set(shown) and f"fedlit {command} --help all" in brief and "subclasses" not in brief
    assert keys_of(help_of(capsys, "describe", "--help=exchange")) == {k for k in everything if k[:9] == "exchange."}
    assert keys_of(help_of(capsys, "fit", "--help", "data.steps")) == {"data.steps"}
    assert "--data.source.target" in help_of(capsys, "fit", "--data.source.help=fedlit.Tables")
    assert main(["fit", "--help", "exchang"]) == 2
    assert "found 'exchang'. Did you mean 'exchange'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fit", "--config", "quickstart", "--seed", "9", "--print_config"])
    assert "seed: 9" in capsys.readouterr().out


def test_the_page_of_all_keys_is_as_it_is_made() -> None:
    page = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
    made = keys_markdown(_parser())
    assert made in page, "keys_markdown says how to make it"
    assert len(re.findall(r"^\| `", made, re.MULTILINE)) > 50 and not re.search(r":(class|func|mod|meth):", made)

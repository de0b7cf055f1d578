"""``fedlit methods``: one method, and the page that is made of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.run.catalogue import cards

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_each_is_shown_with_equation_and_configuration_and_the_page_is_as_it_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, card in cards().items():
        assert main(["methods", "show", name]) == 0
        out = capsys.readouterr().out
        assert all(line.strip() in out for line in card.equation.splitlines())
        assert all(line in out for line in card.config.read_text("utf-8").splitlines())
        assert all(key in out for key in card.tune) and f"--method {name}" in out
    assert main(["methods"]) == 0 and "fedlit methods show NAME" in capsys.readouterr().out
    assert main(["methods", "--format", "markdown"]) == 0
    assert PAGE.read_text("utf-8").endswith(capsys.readouterr().out), "fedlit methods --format markdown makes it"

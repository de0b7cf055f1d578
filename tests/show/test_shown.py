"""Colours are for terminals, and for who wants them."""

from __future__ import annotations

import io

import pytest

from fedlit.show.shown import for_terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TEXT = "Note: a column was left out\nfedlit: error: it is gone"


def test_colours_are_at_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = for_terminal(TEXT, Terminal())
    assert shown.startswith("\x1b[33mNote:\x1b[0m a column") and "\x1b[1;31mfedlit: error\x1b[0m" in shown
    assert for_terminal(TEXT, io.StringIO()) == TEXT
    monkeypatch.setenv("NO_COLOR", "1")
    assert for_terminal(TEXT, Terminal()) == TEXT

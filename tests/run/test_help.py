"""``fedlit fit --help``, as the command prints it."""

from __future__ import annotations

import re

import pytest

from fedlit.__main__ import main
from fedlit.run.help import OWN_WORDS, SHOWN, TITLES

MARKUP = re.compile(r"`|:(class|func|mod|meth|attr|data):")


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_ours_come_first_and_all_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    brief, everything = help_of(capsys, "fit", "--help"), help_of(capsys, "fit", "--help", "all")
    for text in (brief, everything):
        assert max(map(len, text.splitlines())) <= 80 and not MARKUP.search(text)
    assert len(brief.splitlines()) <= 85
    keys = re.findall(r"^  --([\w.]+)", everything, re.MULTILINE)
    assert len(keys) == len(set(keys)) > 80 and {group for group in TITLES if group} <= {
        key.partition(".")[0] for key in keys
    }
    for shown in (*SHOWN.values(), OWN_WORDS):  # a key that was renamed would be missing without a word
        assert set(shown) <= set(keys)
    explained = re.findall(r"^  --([\w.]+)", brief, re.MULTILINE)
    assert set(explained) == set(SHOWN["fit"])
    for key in set(keys) - set(explained):
        group, _, own = key.rpartition(".")
        named = re.search(rf"more, with --help {group or 'all'}:([^:]*)\n\n", brief)
        assert group == "trainer" or (named and own in re.findall(r"\w+", named.group(1))), key
    # one screenful before anything of Lightning's
    assert brief.index("Lightning's Trainer:") > brief.index("TensorBoard:") > brief.index("Data:")
    assert "--data.scaling" not in brief
    assert "[client, pooled or none; default: client]" in " ".join(everything.split())


def test_a_group_a_key_a_class_and_a_topic_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    group = help_of(capsys, "describe", "--help=exchange")
    assert set(re.findall(r"^  --(\w+)\.", group, re.MULTILINE)) == {"exchange"} and "--exchange.rate" in group
    key = re.sub(r"\s+", " ", help_of(capsys, "fit", "--help", "data.steps"))
    assert key.startswith("Key data.steps: --data.steps ") and "--data.source" not in key
    own = help_of(capsys, "fit", "--data.source.help=fedlit.Tables")
    assert "--data.source.target" in own and not MARKUP.search(own)
    assert main(["fit", "--help", "exchang"]) == 2
    error = capsys.readouterr().err
    assert "found 'exchang'. Did you mean 'exchange'?" in error and "checkpoint" in error

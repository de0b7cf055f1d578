"""Packages that are not installed: each is asked for in one sentence that says how to install it."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedlit import Mean
from fedlit.data.sources.packaged import Rdatasets
from fedlit.data.sources.reads import records_of
from fedlit.errors import ConfigError
from fedlit.institutions.extra import needs_flower
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import Masked, Privacy
from fedlit.sharing import Sharing

NAMES = dict.fromkeys("abcd", ("w",))
SHARING = Sharing(NAMES, NAMES, {"w": ("float32", (1,))})


def flower() -> None:
    with needs_flower():
        pass


# of export: run/test_export.py
@pytest.mark.parametrize(
    ("package", "extra", "ask"),
    [
        ("cryptography", "flower", flower),
        ("cryptography", "privacy", partial(refuse, Privacy(Masked()), Mean(), SHARING, 4)),
        ("dnaio", "reads", partial(records_of, Path("reads.fasta"), "reads")),
        ("rdatasets", "rdatasets", partial(Rdatasets("Exam", "mlmRev", "normexam", "school").tables, 8)),
    ],
)
def test_an_extra_that_is_missing_is_named(
    package: str, extra: str, ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install .*fedlit\[{extra}\]") as found:
        ask()
    assert "\n" not in str(found.value)

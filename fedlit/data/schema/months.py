"""Names of months in German, French, Spanish, Italian and Portuguese, which become English ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = """
    januar jänner janvier enero gennaio janeiro jän janv ene
    februar feber février fevrier febrero febbraio fevereiro févr fevr fév fev
    märz maerz mars marzo março marco mär mrz
    avril abril aprile avr abr
    mai mayo maggio maio mag
    juni juin junio giugno junho giu
    juli juillet julio luglio julho juil lug
    august août aout agosto ago
    september septembre septiembre setiembre settembre setembro sept set
    oktober octobre octubre ottobre outubro okt ott out
    november novembre noviembre novembro
    dezember décembre decembre diciembre dicembre dezembro dez déc dic
"""
_FOREIGN = dict[str, int]()
for _month, _line in enumerate(_NAMES.strip().splitlines(), 1):
    _FOREIGN.update(dict.fromkeys(_line.split(), _month))
_WHOLE = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_ABBREVIATED = [name[:3] for name in _WHOLE]
_ENGLISH = {name.casefold(): month for month, name in enumerate(_WHOLE, 1)}
_SHORT = {name.casefold(): month for month, name in enumerate(_ABBREVIATED, 1)}
_MONTHS = {**_SHORT, **_ENGLISH, **_FOREIGN}
_WORD = re.compile(
    r"(?P<before>\bde )?\b(?P<month>[^\W\d_]{3,10})\b(?P<after>\.(?=[ -]| *$)| de\b)?"
)
_SAMPLE = 20


def are_foreign(texts: Sequence[str]) -> bool:
    """Return whether some of the first texts name a month in another language than English.

    Example:
        >>> are_foreign(["3. März 2020"]), are_foreign(["3 March 2020", "May 2020"])
        (True, False)
    """
    months = set[str]()
    for text in texts[:_SAMPLE]:
        months.update(match["month"].casefold() for match in _WORD.finditer(text))
    return bool(months & (_FOREIGN.keys() - _ENGLISH.keys() - _SHORT.keys()))


def in_english(texts: Sequence[str], *, short: bool = True) -> list[str]:
    """Return texts in which each month has its English name, in three letters if it is ``short``.

    Example:
        >>> in_english(["3. März 2020", "12 janv. 2020", "5 de mayo de 2020", "7-Dez-19", "Apr 2020"])
        ['3. Mar 2020', '12 Jan 2020', '5 May 2020', '7-Dec-19', 'Apr 2020']
    """
    names = _ABBREVIATED if short else _WHOLE

    def english(match: re.Match[str]) -> str:
        month = _MONTHS.get(match["month"].casefold())
        return match[0] if month is None else names[month - 1]

    return [_WORD.sub(english, text) for text in texts]

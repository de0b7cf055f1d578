"""Codes that look like numbers: 007, ICD-9's 008.45, and 250.00 beside 401.9."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedlit.data.note import Note

_EXACT = 15
"""Digits that float64 keeps."""
_WHOLE = re.compile(r"[-+]?\d+(?:\.0?)?")
_PADDED = re.compile(r"0\d+\.\d*")
_TRAILING_ZERO = re.compile(r"[-+]?\d+\.\d+0")
_FEWER_DECIMALS = re.compile(r"[-+]?\d+(?:\.\d?)?")
_NAME = re.compile(
    r"(^|[\W_])(icd|diag|diagnosis|dx|code|atc|cpt|drg|loinc)([\W_]?\d*)?([\W_]|$)", re.I
)
_SHORTENED = re.compile(r"\d\.\d{1,5}E\+\d{2}")
_FEWEST_SHORTENED = 1e10
"""The smallest number whose last digits Excel leaves out."""
_MOST_CODES = 50
_SAMPLE = 500


def is_code(text: str) -> bool:
    """Return whether digits are a name: 007 differs from 7, and float64 cannot tell numbers of 26
    digits apart.
    """
    return len(text) > 1 and (text[0] == "0" or len(text) > _EXACT) and text.isdecimal()


def has_padded(texts: Sequence[str]) -> bool:
    """Return whether some text has a zero before its digits and its point.

    Example:
        >>> has_padded(["250.00", "008.45"]), has_padded(["0.45", "10"])
        (True, False)
    """
    return any(text[:1] == "0" and _PADDED.fullmatch(text) for text in texts)


def are_whole(texts: Sequence[str]) -> bool:
    """Return whether all texts are whole numbers, of which 1 and 1.0 are the same."""
    return all(_WHOLE.fullmatch(text) for text in texts)


def code_notes(name: str, texts: Sequence[str]) -> list[Note]:
    """Ask whether numbers, which are given as texts, are codes: programs write all numbers of a
    column with as many decimals, or none without end, so 250.00 beside 401.9 was not written as a
    number.

    Example:
        >>> code_notes("cause", ["250.00", "401.9"])[0].kind, code_notes("bmi", ["25.1", "30.25"])
        ('codes', [])
    """
    some = texts[:_SAMPLE]
    padded = [text for text in some if text[:1] == "0" and _PADDED.fullmatch(text)]
    zeros = [text for text in some if text[-1:] == "0" and _TRAILING_ZERO.fullmatch(text)]
    fewer_decimals = [text for text in some if _FEWER_DECIMALS.fullmatch(text)]
    if padded:
        example = repr(padded[0])
    elif zeros and fewer_decimals:
        example = f"{zeros[0]!r} beside {fewer_decimals[0]!r}"
    elif _NAME.search(name) and len({*some}) <= _MOST_CODES and not are_whole(some):
        example = repr(some[0])
    else:
        return []
    text = f"is read as numbers, but {example} may be a code. Then write types: {{{name}: categorical}}"
    kinds = ("categorical", "numeric")
    return [Note(text, "codes", alternatives=[{"types": {name: kind}} for kind in kinds])]


def shortened_notes(name: str, texts: Sequence[str]) -> list[Note]:
    """Ask whether large numbers are codes whose digits Excel left out.

    Example:
        >>> shortened_notes("barcode", ["1.20E+12", "4.01E+12"])[0].kind
        'codes'
        >>> shortened_notes("mass", ["1.20E+12", "4012345678901.0"])
        []
    """
    some = texts[:_SAMPLE]
    if not some or not all(
        _SHORTENED.fullmatch(text) and float(text) >= _FEWEST_SHORTENED for text in some
    ):
        return []
    text = (
        f"{some[0]!r} has lost digits if it is a code: then write the file again with this column "
        "as text, or drop it"
    )
    return [Note(text, "codes", alternatives=[{"drop": [name]}, {"types": {name: "numeric"}}])]

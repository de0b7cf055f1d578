"""Numbers that may stand for a missing value, and numbers that lie far from all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlit.data.note import Note
from fedlit.show.text import counted, shorten

_REPEATED = {
    float(sign * int(digit * n)) for digit in "98" for n in range(1, 7) for sign in (-1, 1)
}
_GAPS = _REPEATED - {8.0, -8.0} | {-1.0}
"""Numbers that stand for a missing value alone."""
_SEVENS = {float(sign * int("7" * n)) for n in range(1, 7) for sign in (-1, 1)}
_BELOW_POWERS = {float(10**n - below) for n in (2, 3, 4) for below in (2, 3, 4)}
_SETS = _SEVENS | _BELOW_POWERS | {float(-n) for n in range(2, 9)} | {8.0}
"""Numbers that stand for one of several reasons why there is no value: refused, unknown, not
asked."""
_ALL = _GAPS | _SETS
_BELOW_ONES = -7.0
_HARDLY = 888  # a code of three digits
# of a scale such as 1 to 5, beside which 9 is no place; of rows at its end
_LONGEST_SCALE = 5
_LEAST_SHARE = 0.05
_CODES_OF_SCALES = (7.0, 8.0, 9.0)
_LARGE = 100  # from which small numbers below zero are no measurements
_NEVER = 3.5  # standard deviations from the others to zero, where nothing lies between
_NEAREST = 0.2  # of the median: the smallest number above an impossible zero
_MOST_ZEROS = 0.2  # of the rows: where there are more, zero may be a group of its own
_MOST_ZEROS_OF_ALL = 0.6
_NEAREST_TO_MANY = 0.5  # of the median: the smallest number above many zeros
_MANY = 20
FAR = 8
"""Standard deviations from which a number is reported."""
_NORMAL = 1.349  # standard deviations between the quartiles of a normal distribution
_MOST_FAR = 0.01  # of the cells that may be errors
# times the range of the others: what lies so far away is hardly the tail of a distribution
_ALONE = 3
_SHOWN = 5


def missing_codes(values: np.ndarray) -> list[float]:
    """Return numbers that stand for a missing value, such as -9, 99, 999 or 8888, or 97, 98 and 99
    together. They lie outside of all other numbers of a column (n,), and further away than these
    are from each other, below zero, or far more frequent.

    Example:
        >>> missing_codes(np.array([40.0, 51.0, 60.0, 999.0, np.nan])), missing_codes(np.array([7.0, 8.0, 9.0]))
        ([999.0], [])
        >>> missing_codes(np.array([1.0, 12.0, 6.0, 98.0, 99.0])), missing_codes(np.array([1.0, 2.0, 3.0, -8.0, -9.0]))
        ([98.0, 99.0], [-9.0, -8.0])
    """
    # nearly always, and without sorting
    if not {float(np.nanmin(values)), float(np.nanmax(values))} & _ALL:
        return []
    own, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    return sorted({*_single_codes(own, counts), *_sets_of_codes(own)})


def _single_codes(own: np.ndarray, counts: np.ndarray) -> list[float]:
    code = np.isin(own, [*_GAPS])
    if (~code).sum() < 2:
        return []
    low = own[~code].min()
    high = own[~code].max()
    most = counts[~code].max()
    others = (~code).sum()
    # counted or measured otherwise
    below = (own < 0) & (low >= 0) & (others > np.where(own == -1, 10, 2))
    far = np.minimum(abs(own - low), abs(own - high)) > high - low
    found: list[float] = own[
        code & ((own < low) | (own > high)) & (below | far | (counts > max(3, 3 * most)))
    ].tolist()
    return found


def _sets_of_codes(own: np.ndarray) -> list[float]:
    """Return several codes that are judged together, so that one does not hide the other."""
    code = np.isin(own, [*_ALL])
    others = own[~code]
    if len(others) < 3:
        return []
    low = others.min()
    high = others.max()
    outside = code & ((own < low) | (own > high))
    far = outside & (np.minimum(abs(own - low), abs(own - high)) > high - low)
    isolated = outside & (own <= _BELOW_ONES) & (low >= 0)
    if (outside & (own < 0) & ~isolated).any():  # numbers below zero go on to zero
        isolated[:] = False
    found: list[float] = own[far | isolated].tolist()
    return found if len(found) > 1 else []


def doubtful_codes(values: np.ndarray) -> list[float]:
    """Return numbers of a column (n,) that may stand for a missing value, though they could be
    true: 9 beside a scale from 1 to 5, zeros below numbers that never come near zero, -1 and -2
    beside large numbers.

    Args:
        values: the numbers without :func:`missing_codes`.

    Example:
        >>> doubtful_codes(np.array([1.0, 2, 3, 4, 5, 9] * 9)), doubtful_codes(np.array([0.0, 0.0, *range(60, 120)]))
        ([9.0], [0.0])
    """
    known = values[np.isfinite(values)]
    if len(known) < _MANY:
        return []
    low = known.min()
    high = known.max()
    if low == 0 and _is_impossible_zero(known):
        return [0.0]
    if high in _CODES_OF_SCALES and low in (0.0, 1.0):
        return _beside_a_scale(known)
    if -9 <= low < 0 and high >= _LARGE:
        return _small_below_zero(known)
    return []


def _is_impossible_zero(known: np.ndarray) -> bool:
    others = known[known > 0]
    zeros = len(known) - len(others)
    few = zeros <= _MOST_ZEROS * len(known)
    nearest = (_NEAREST if few else _NEAREST_TO_MANY) * np.median(others) if len(others) else 0
    if not 2 <= zeros <= _MOST_ZEROS_OF_ALL * len(known) or others.min() < nearest:
        return False
    first, median, third = np.percentile(others, [25, 50, 75])
    return bool(median * _NORMAL > _NEVER * (third - first) > 0 and len(np.unique(others)) >= _MANY)


def _beside_a_scale(known: np.ndarray) -> list[float]:
    own, counts = np.unique(known, return_counts=True)
    code = np.isin(own, _CODES_OF_SCALES)
    scale = own[~code]
    end = scale[-1] if len(scale) else 0
    fits = 2 < end <= _LONGEST_SCALE and np.array_equal(scale, np.arange(scale[0], end + 1))
    apart = own[code].min() - end >= (2 if code.sum() > 1 else 4)
    ends = counts[~code][-1] >= _LEAST_SHARE * len(known) if len(scale) else False
    return own[code].tolist() if fits and apart and ends else []


def _small_below_zero(known: np.ndarray) -> list[float]:
    own, counts = np.unique(known[known < 0], return_counts=True)
    whole = bool((own % 1 == 0).all() and (known[:1000] % 1 == 0).all())
    found: list[float] = own.tolist()
    return found if whole and len(own) <= 4 and counts.min() >= 3 else []


def missing_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Ask whether some of the numbers (n,) of a column or target stand for a missing value."""
    codes = missing_codes(numbers)
    others = numbers[~np.isin(numbers, codes)] if codes else numbers
    certain = codes if len(codes) > 1 else [code for code in codes if _is_certain(code, numbers)]
    plausible = [*(code for code in codes if code not in certain), *doubtful_codes(others)]
    notes = list[Note]()
    if certain:
        notes.append(asked_missing(name, _shown(numbers, certain), _plain(certain)))
    if plausible:
        notes.append(
            asked_missing(name, _shown(numbers, plausible), _plain(plausible), certain=False)
        )
    return notes


def _is_certain(code: float, numbers: np.ndarray) -> bool:
    """Return whether a single code can hardly be a value. A few 9s or 99s may be counts, a -1 may
    be a balance, and a number that occurs once may be the largest one.
    """
    if code < 0:
        return code <= _BELOW_ONES
    return code >= _HARDLY and (numbers == code).sum() > 1


def asked_missing(name: str, shown: str, words: Sequence[object], *, certain: bool = True) -> Note:
    """Ask whether cells have no value: ``words`` become a fix if that is nearly certain, and a
    choice otherwise.
    """
    text = f"does {shown} mean that there is no value? Then write missing: {{{name}: {[*words]}}}"
    fix = {"missing": {name: [*words]}}
    if certain:
        return Note(text, "missing", fix=fix)
    return Note(text, "missing", alternatives=[fix])


def far_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Report numbers (n,) that are over :data:`FAR` standard deviations from the mean of the
    others. If there are few, and nothing lies between, a person is asked whether they are errors.

    Example:
        >>> ages = np.array([*range(20, 90), 11012.0])
        >>> far_notes("age", ages)[0].removeprefix("1 cell is over 8 standard deviations ")
        'from the others, such as 11012; correct it, or write missing: {age: [11012]}'
    """
    known = numbers[np.isfinite(numbers)]
    if len(known) < _MANY:
        return []
    first, third = np.percentile(known, [25, 75])
    beyond = FAR * (third - first) / _NORMAL
    near = (known >= first - beyond) & (known <= third + beyond)
    if beyond == 0 or near.all():
        return []
    others = known[near]
    far = known[abs(known - others.mean()) > FAR * others.std()]
    codes = missing_codes(known)
    far = far[~np.isin(far, codes)] if codes else far
    if not len(far):
        return []
    verb = "is" if len(far) == 1 else "are"
    text = (
        f"{counted(len(far), 'cell')} {verb} over {FAR} standard deviations from the others, "
        "such as "
    )
    text += shorten([f"{own:.15g}" for own in np.unique(far)], _SHOWN)
    kept = known[~np.isin(known, far)]
    gap = np.minimum(abs(far - kept.min()), abs(far - kept.max())).min()
    if len(far) > max(1, _MOST_FAR * len(known)) or gap <= _ALONE * np.ptp(kept):
        return [Note(text, "tail")]
    words = _plain(np.unique(far).tolist())
    text += f"; correct {'it' if len(far) == 1 else 'them'}, or write missing: {{{name}: {words}}}"
    return [Note(text, "far", alternatives=[{"missing": {name: words}}])]


def _plain(numbers: Sequence[float]) -> list[float]:
    return [int(number) if float(number).is_integer() else number for number in numbers]


def _shown(numbers: np.ndarray, codes: Sequence[float]) -> str:
    return " and ".join(f"{code:g} ({int((numbers == code).sum()):,} cells)" for code in codes)

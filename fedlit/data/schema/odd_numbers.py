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
    distinct, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    return sorted({*_single_codes(distinct, counts), *_sets_of_codes(distinct)})


def _single_codes(distinct: np.ndarray, counts: np.ndarray) -> list[float]:
    code = np.isin(distinct, [*_GAPS])
    if (~code).sum() < 2:
        return []
    low = distinct[~code].min()
    high = distinct[~code].max()
    most = counts[~code].max()
    count = (~code).sum()
    # counted or measured otherwise
    below = (distinct < 0) & (low >= 0) & (count > np.where(distinct == -1, 10, 2))
    far = np.minimum(abs(distinct - low), abs(distinct - high)) > high - low
    codes: list[float] = distinct[
        code & ((distinct < low) | (distinct > high)) & (below | far | (counts > max(3, 3 * most)))
    ].tolist()
    return codes


def _sets_of_codes(distinct: np.ndarray) -> list[float]:
    """Return several codes that are judged together, so that one does not hide the other."""
    code = np.isin(distinct, [*_ALL])
    rest = distinct[~code]
    if len(rest) < 3:
        return []
    low = rest.min()
    high = rest.max()
    outside = code & ((distinct < low) | (distinct > high))
    far = outside & (np.minimum(abs(distinct - low), abs(distinct - high)) > high - low)
    isolated = outside & (distinct <= _BELOW_ONES) & (low >= 0)
    if (outside & (distinct < 0) & ~isolated).any():  # numbers below zero go on to zero
        isolated[:] = False
    codes: list[float] = distinct[far | isolated].tolist()
    return codes if len(codes) > 1 else []


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
    finite = values[np.isfinite(values)]
    if len(finite) < _MANY:
        return []
    low = finite.min()
    high = finite.max()
    if low == 0 and _is_impossible_zero(finite):
        return [0.0]
    if high in _CODES_OF_SCALES and low in (0.0, 1.0):
        return _beside_a_scale(finite)
    if -9 <= low < 0 and high >= _LARGE:
        return _small_below_zero(finite)
    return []


def _is_impossible_zero(finite: np.ndarray) -> bool:
    positive = finite[finite > 0]
    zeros = len(finite) - len(positive)
    few = zeros <= _MOST_ZEROS * len(finite)
    nearest = (_NEAREST if few else _NEAREST_TO_MANY) * np.median(positive) if len(positive) else 0
    if not 2 <= zeros <= _MOST_ZEROS_OF_ALL * len(finite) or positive.min() < nearest:
        return False
    first, median, third = np.percentile(positive, [25, 50, 75])
    return bool(median * _NORMAL > _NEVER * (third - first) > 0 and len(np.unique(positive)) >= _MANY)


def _beside_a_scale(finite: np.ndarray) -> list[float]:
    distinct, counts = np.unique(finite, return_counts=True)
    code = np.isin(distinct, _CODES_OF_SCALES)
    scale = distinct[~code]
    end = scale[-1] if len(scale) else 0
    fits = 2 < end <= _LONGEST_SCALE and np.array_equal(scale, np.arange(scale[0], end + 1))
    apart = distinct[code].min() - end >= (2 if code.sum() > 1 else 4)
    ends = counts[~code][-1] >= _LEAST_SHARE * len(finite) if len(scale) else False
    return distinct[code].tolist() if fits and apart and ends else []


def _small_below_zero(finite: np.ndarray) -> list[float]:
    distinct, counts = np.unique(finite[finite < 0], return_counts=True)
    whole = bool((distinct % 1 == 0).all() and (finite[:1000] % 1 == 0).all())
    codes: list[float] = distinct.tolist()
    return codes if whole and len(distinct) <= 4 and counts.min() >= 3 else []


def missing_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Ask whether some of the numbers (n,) of a column or target stand for a missing value."""
    codes = missing_codes(numbers)
    rest = numbers[~np.isin(numbers, codes)] if codes else numbers
    certain = codes if len(codes) > 1 else [code for code in codes if _is_certain(code, numbers)]
    plausible = [*(code for code in codes if code not in certain), *doubtful_codes(rest)]
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


def asked_missing(name: str, cells: str, values: Sequence[object], *, certain: bool = True) -> Note:
    """Ask whether cells have no value: ``words`` become a fix if that is nearly certain, and a
    choice otherwise.
    """
    text = f"does {cells} mean that there is no value? Then write missing: {{{name}: {[*values]}}}"
    fix = {"missing": {name: [*values]}}
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
    finite = numbers[np.isfinite(numbers)]
    if len(finite) < _MANY:
        return []
    first, third = np.percentile(finite, [25, 75])
    beyond = FAR * (third - first) / _NORMAL
    near = (finite >= first - beyond) & (finite <= third + beyond)
    if beyond == 0 or near.all():
        return []
    typical = finite[near]
    far = finite[abs(finite - typical.mean()) > FAR * typical.std()]
    codes = missing_codes(finite)
    far = far[~np.isin(far, codes)] if codes else far
    if not len(far):
        return []
    verb = "is" if len(far) == 1 else "are"
    text = (
        f"{counted(len(far), 'cell')} {verb} over {FAR} standard deviations from the others, "
        "such as "
    )
    text += shorten([f"{number:.15g}" for number in np.unique(far)], _SHOWN)
    rest = finite[~np.isin(finite, far)]
    gap = np.minimum(abs(far - rest.min()), abs(far - rest.max())).min()
    if len(far) > max(1, _MOST_FAR * len(finite)) or gap <= _ALONE * np.ptp(rest):
        return [Note(text, "tail")]
    values = _plain(np.unique(far).tolist())
    text += f"; correct {'it' if len(far) == 1 else 'them'}, or write missing: {{{name}: {values}}}"
    return [Note(text, "far", alternatives=[{"missing": {name: values}}])]


def _plain(numbers: Sequence[float]) -> list[float]:
    return [int(number) if float(number).is_integer() else number for number in numbers]


def _shown(numbers: np.ndarray, codes: Sequence[float]) -> str:
    return " and ".join(f"{code:g} ({int((numbers == code).sum()):,} cells)" for code in codes)

"""Numbers that may stand for a missing value, and numbers that lie far from all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlit.data.note import Note
from fedlit.show.text import counted, shorten


def _repeated(digit: str) -> set[float]:
    """Return 9, 99 to 9999999999 for the digit 9, and the same below zero."""
    numbers = [float(digit * length) for length in range(1, 11)]
    return {*numbers, *(-number for number in numbers)}


_GAPS = (_repeated("9") | _repeated("8") | {-1.0}) - {8.0, -8.0}
"""Numbers that stand for a missing value alone."""
_BELOW_POWERS = {96.0, 97.0, 98.0, 996.0, 997.0, 998.0, 9996.0, 9997.0, 9998.0}
_SETS = _repeated("7") | _BELOW_POWERS | {float(-n) for n in range(2, 9)} | {8.0}
"""Numbers that stand for one of several reasons why there is no value: refused, unknown, not
asked."""
_ALL = _GAPS | _SETS
_BELOW_ONES = -7.0
_HARDLY = 888
"""The smallest code that is hardly a value."""
_LONGEST_SCALE = 5
"""The largest end of a scale, such as 1 to 5, to which a 7, 8 or 9 cannot belong."""
_LEAST_SHARE = 0.05
"""The smallest share of the rows at the end of such a scale."""
_CODES_OF_SCALES = (7.0, 8.0, 9.0)
_LARGE = 100
"""The number from which small numbers below zero are no measurements."""
_NEVER = 3.5
"""Standard deviations from the other numbers to an impossible zero."""
_NEAREST = 0.2
"""The smallest number above an impossible zero, as a share of the median."""
_MOST_ZEROS = 0.2
"""The share of zeros from which zero may be a group of rows."""
_MOST_ZEROS_OF_ALL = 0.6
_NEAREST_TO_MANY = 0.5
"""The smallest number above many zeros, as a share of the median."""
_MANY = 20
FAR = 8
"""Standard deviations from which a number is reported."""
_NORMAL = 1.349
"""Standard deviations between the quartiles of a normal distribution."""
_MOST_FAR = 0.01
"""The largest share of the cells that may be errors."""
_ALONE = 3
"""The smallest distance of an error from the other numbers, in multiples of their range; nearer
numbers may be the tail of a distribution."""
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
        >>> missing_codes(np.array([857.0, 1200.0, 3000.0, 99999999.0]))
        [99999999.0]
    """
    # This sorts out nearly all columns, without sorting their numbers.
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
    outside = (distinct < low) | (distinct > high)
    # Other numbers are counts or measurements, which do not go below zero.
    below = (distinct < 0) & (low >= 0) & (count > np.where(distinct == -1, 10, 2))
    far = np.minimum(abs(distinct - low), abs(distinct - high)) > high - low
    frequent = counts > max(3, 3 * most)
    codes: list[float] = distinct[code & outside & (below | far | frequent)].tolist()
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
    if (outside & (distinct < 0) & ~isolated).any():  # Numbers below zero go on to zero.
        isolated[:] = False
    codes: list[float] = distinct[far | isolated].tolist()
    if len(codes) < 2:
        return []
    return codes


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
    if not 2 <= zeros <= _MOST_ZEROS_OF_ALL * len(finite):
        return False
    nearest = _NEAREST if zeros <= _MOST_ZEROS * len(finite) else _NEAREST_TO_MANY
    if positive.min() < nearest * np.median(positive):
        return False
    first, median, third = np.percentile(positive, [25, 50, 75])
    is_far = median * _NORMAL > _NEVER * (third - first) > 0
    return bool(is_far and len(np.unique(positive)) >= _MANY)


def _beside_a_scale(finite: np.ndarray) -> list[float]:
    distinct, counts = np.unique(finite, return_counts=True)
    code = np.isin(distinct, _CODES_OF_SCALES)
    scale = distinct[~code]
    if not len(scale):
        return []
    end = scale[-1]
    is_scale = 2 < end <= _LONGEST_SCALE and np.array_equal(scale, np.arange(scale[0], end + 1))
    is_used = counts[~code][-1] >= _LEAST_SHARE * len(finite)
    distance = 2 if code.sum() > 1 else 4
    if not is_scale or not is_used or distinct[code].min() - end < distance:
        return []
    codes: list[float] = distinct[code].tolist()
    return codes


def _small_below_zero(finite: np.ndarray) -> list[float]:
    distinct, counts = np.unique(finite[finite < 0], return_counts=True)
    are_whole = (distinct % 1 == 0).all() and (finite[:1000] % 1 == 0).all()
    if not are_whole or len(distinct) > 4 or counts.min() < 3:
        return []
    codes: list[float] = distinct.tolist()
    return codes


def missing_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Ask whether some of the numbers (n,) of a column or target stand for a missing value."""
    codes = missing_codes(numbers)
    certain = codes
    if len(codes) == 1 and not _is_certain(codes[0], numbers):
        certain = []
    plausible = [code for code in codes if code not in certain]
    plausible += doubtful_codes(numbers[~np.isin(numbers, codes)])
    notes = list[Note]()
    if certain:
        notes.append(asked_missing(name, _counted(numbers, certain), _plain(certain)))
    if plausible:
        cells = _counted(numbers, plausible)
        notes.append(asked_missing(name, cells, _plain(plausible), certain=False))
    return notes


def _is_certain(code: float, numbers: np.ndarray) -> bool:
    """Return whether a single code can hardly be a value. A few 9s or 99s may be counts, a -1 may
    be a balance, and a number that occurs once may be the largest one.
    """
    if code < 0:
        return code <= _BELOW_ONES
    return code >= _HARDLY and (numbers == code).sum() > 1


def asked_missing(name: str, cells: str, values: Sequence[object], *, certain: bool = True) -> Note:
    """Ask whether cells have no value: their values become a fix if that is nearly certain, and a
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
    # Quartiles do not depend on the numbers that are far. What lies beyond them by FAR standard
    # deviations of a normal distribution does not count for the mean and the standard deviation.
    first, third = np.percentile(finite, [25, 75])
    beyond = FAR * (third - first) / _NORMAL
    near = (finite >= first - beyond) & (finite <= third + beyond)
    if beyond == 0 or near.all():
        return []
    typical = finite[near]
    far = finite[abs(finite - typical.mean()) > FAR * typical.std()]
    codes = missing_codes(finite)
    if codes:
        far = far[~np.isin(far, codes)]
    if not len(far):
        return []
    verb, pronoun = ("is", "it") if len(far) == 1 else ("are", "them")
    examples = shorten([f"{number:.15g}" for number in np.unique(far)], _SHOWN)
    text = (
        f"{counted(len(far), 'cell')} {verb} over {FAR} standard deviations from the others, "
        f"such as {examples}"
    )
    # A few numbers far from all others are errors; many, or near ones, the tail of a distribution.
    rest = finite[~np.isin(finite, far)]
    gap = np.minimum(abs(far - rest.min()), abs(far - rest.max())).min()
    if len(far) > max(1, _MOST_FAR * len(finite)) or gap <= _ALONE * np.ptp(rest):
        return [Note(text, "tail")]
    values = _plain(np.unique(far).tolist())
    text += f"; correct {pronoun}, or write missing: {{{name}: {values}}}"
    return [Note(text, "far", alternatives=[{"missing": {name: values}}])]


def _plain(numbers: Sequence[float]) -> list[float]:
    return [int(number) if float(number).is_integer() else number for number in numbers]


def _counted(numbers: np.ndarray, codes: Sequence[float]) -> str:
    return " and ".join(f"{code:g} ({int((numbers == code).sum()):,} cells)" for code in codes)

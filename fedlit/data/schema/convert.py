"""Converts the numbers of a column from one unit to another, before its type is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import ANY_UNIT, Conversion
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.numbers import Notation, find_notation, same_unit, split
from fedlit.show.text import shorten

_MASS = {
    "t": 1e6,
    "kg": 1e3,
    "g": 1.0,
    "mg": 1e-3,
    "ug": 1e-6,
    "ng": 1e-9,
    "lb": 453.59237,
    "oz": 28.349523125,
}
_LENGTH = {
    "km": 1e3, "m": 1.0, "cm": 1e-2, "mm": 1e-3, "µm": 1e-6, "nm": 1e-9, "in": 0.0254, "inch": 0.0254, "ft": 0.3048,
    "yd": 0.9144, "mi": 1609.344,
}  # fmt: skip
_VOLUME = {"l": 1.0, "dl": 1e-1, "cl": 1e-2, "ml": 1e-3, "µl": 1e-6}
_TIME = {
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "y": 31557600.0,
}
_AMOUNT = {"mol": 1.0, "mmol": 1e-3, "µmol": 1e-6}
_PRESSURE = {"kpa": 1.0, "mmhg": 0.1333223874}
_ENERGY = {"kj": 1.0, "kcal": 4.184}
_SCALES: tuple[Mapping[str, float], ...] = (
    _MASS,
    _LENGTH,
    _VOLUME,
    _TIME,
    _AMOUNT,
    _PRESSURE,
    _ENERGY,
)
_TO_CELSIUS: Mapping[str, Conversion] = {
    "°c": (1.0, 0.0),
    "°f": (5 / 9, -160 / 9),
    "k": (1.0, -273.15),
}

UNWRITTEN: Mapping[str, Conversion] = {
    "pounds to kilograms": (0.45359237, 0.0),
    "kilograms to pounds": (1 / 0.45359237, 0.0),
    "inches to centimetres": (2.54, 0.0),
    "centimetres to inches": (1 / 2.54, 0.0),
    "degrees Fahrenheit to Celsius": (5 / 9, -160 / 9),
    "degrees Celsius to Fahrenheit": (1.8, 32.0),
    "days to years": (1 / 365.25, 0.0),
    "years to days": (365.25, 0.0),
    "months to years": (1 / 12, 0.0),
    "years to months": (12.0, 0.0),
    "mmol/l to mg/dl, for glucose": (18.016, 0.0),
    "mg/dl to mmol/l, for glucose": (1 / 18.016, 0.0),
    "mmol/l to mg/dl, for cholesterol": (38.67, 0.0),
    "mg/dl to mmol/l, for cholesterol": (1 / 38.67, 0.0),
    "µmol/l to mg/dl, for creatinine": (1 / 88.42, 0.0),
    "mg/dl to µmol/l, for creatinine": (88.42, 0.0),
    "times 10": (10.0, 0.0),
    "times 0.1": (0.1, 0.0),
    "times 100": (100.0, 0.0),
    "times 0.01": (0.01, 0.0),
    "times 1,000": (1000.0, 0.0),
    "times 0.001": (0.001, 0.0),
}
"""Conversions between units that tables often do not name."""
_SAME = 0.1
_CLOSE = 0.3
"""Share of the other client's median that the distances of all quartiles may sum up to."""
_TIMES_WORSE = 3
"""How many times further than the nearest conversion another one may be that is still named."""
_AS_GOOD = 0.02
_MOST_LIKELY = 2


def conversion(unit: str, target: str) -> Conversion | None:
    """Return the factor and offset that convert numbers of one unit to another; None if fedlit does
    not know them, as for currencies. Units may be quotients.

    Example:
        >>> conversion("lbs", "kg"), conversion("°F", "°C")[0] == 5 / 9
        ((0.45359237, 0.0), True)
        >>> conversion("mg/dl", "g/l"), conversion("$", "€")
        ((0.01, 0.0), None)
    """
    scale = _TO_CELSIUS.get(unit.casefold())
    target_scale = _TO_CELSIUS.get(target.casefold())
    if scale is not None and target_scale is not None:
        return scale[0] / target_scale[0], (scale[1] - target_scale[1]) / target_scale[0]
    parts = unit.split("/")
    target_parts = target.split("/")
    if len(parts) != len(target_parts):
        return None
    factors = [_factor(*pair) for pair in zip(parts, target_parts, strict=True)]
    quotient = factors[0]
    for factor in factors[1:]:
        if quotient is None or factor is None:
            return None
        quotient /= factor
    return None if quotient is None else (float(f"{quotient:.12g}"), 0.0)


def _factor(unit: str, target: str) -> float | None:
    """Return how many target units a unit is, neither of which is a quotient."""
    unit = same_unit(unit).replace("ul", "µl").casefold()
    target = same_unit(target).replace("ul", "µl").casefold()
    if unit == target:
        return 1.0
    for scale in _SCALES:
        if unit in scale and target in scale:
            return scale[unit] / scale[target]
    return None


def likely_conversions(
    quartiles: Sequence[float], reference: Sequence[float]
) -> dict[str, Conversion]:
    """Return the conversions, by name, that bring the quartiles (3,) of a client near those of
    another one, the reference.

    Example:
        >>> likely_conversions((140.0, 154.0, 172.0), (63.0, 70.0, 78.0))
        {'pounds to kilograms': (0.45359237, 0.0)}
    """
    distances = dict[str, float]()
    for name, (factor, offset) in UNWRITTEN.items():
        converted = [factor * quartile + offset for quartile in quartiles]
        if converted[0] <= reference[2] and reference[0] <= converted[2]:
            distances[name] = _distance(converted, reference)
    if not distances:
        return {}
    near = sorted(distances, key=lambda name: distances[name])[:_MOST_LIKELY]
    size = abs(reference[1])
    most = min(_CLOSE * size, _TIMES_WORSE * distances[near[0]] + _AS_GOOD * size)
    return {name: UNWRITTEN[name] for name in near if distances[name] <= most}


def is_conversion(large: Sequence[float], small: Sequence[float]) -> bool:
    """Return whether some conversion makes the quartiles (3,) of a client those of another one, but
    for chance.
    """
    for factor, offset in UNWRITTEN.values():
        converted = [factor * quartile + offset for quartile in large]
        if _distance(converted, small) <= _SAME * abs(small[1]):
            return True
    return False


def _distance(quartiles: Sequence[float], reference: Sequence[float]) -> float:
    return sum(abs(one - two) for one, two in zip(quartiles, reference, strict=True))


def convert(
    values: pd.Series,
    conversions: Mapping[str, Conversion],
    missing: Iterable[str | float] = (),
    marks: tuple[str | None, str | None] = (None, None),
) -> tuple[pd.Series, list[Note]]:
    """Convert the numbers of a column from their units.

    Args:
        values: (n,), text or typed as a file has it.
        conversions: maps a unit to the factor and offset of the numbers that are written with it;
            ``*`` is for all other numbers.
        missing: words and numbers that mean missing, which stay as they are.
        marks: the decimal mark and that of thousands, if they are known.

    Returns:
        The column, and a note on units that no cell has.

    Example:
        >>> convert(pd.Series(["154 lb", "70 kg"]), {"lb": (0.45359237, 0.0)})[0].tolist()
        ['69.85322498', '70 kg']
        >>> convert(pd.Series([98.6, -9.0]), {"*": (5 / 9, -160 / 9)}, [-9.0])[0].round(6).tolist()
        [37.0, -9.0]
    """
    missing_numbers = [code for code in missing if not isinstance(code, str)]
    everything = conversions.get(ANY_UNIT)
    if values.dtype.kind in "iuf":
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        factor, offset = everything or (1.0, 0.0)
        results = np.where(np.isin(numbers, missing_numbers), numbers, factor * numbers + offset)
        return pd.Series(results, values.index, name=values.name), []
    cells = Cells.of(values)
    filled, _ = cells.without(missing)
    notation, _ = find_notation(filled.texts, *marks)
    by_unit = {
        same_unit(unit): conversion for unit, conversion in conversions.items() if unit != ANY_UNIT
    }
    present = {*filled.texts}
    texts = list[str]()
    used_units = set[str]()
    for text in cells.texts:
        texts.append(text)
        written = split(text)
        if written is None or text not in present:
            continue
        unit = same_unit(written.unit)
        factor_and_offset = by_unit.get(unit, everything)
        if factor_and_offset is None:
            continue
        number = Notation(notation.decimal, notation.thousands, written.unit).value(written)
        if np.isnan(number) or number in missing_numbers:
            continue
        factor, offset = factor_and_offset
        used_units.add(unit)
        texts[-1] = f"{factor * number + offset:.15g}".replace(".", notation.decimal)
    converted = pd.Series(cells.take(np.array(texts, object)), values.index, name=values.name)
    unused = [unit for unit in by_unit if unit not in used_units]
    if not unused:
        return converted, []
    return converted, [Note(f"no cell is in {shorten(unused)}, which convert names", "recoded")]

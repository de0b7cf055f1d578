"""Converts the numbers of a column from one unit to another, before its type is found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import ANY_UNIT, Conversion
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.numbers import Notation, Written, find_notation, same_unit, split
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
_CLOSE = 0.3  # of the others' median, within which the distances of all quartiles lie together
# than the nearest conversion, beside which another one is named
_TIMES_WORSE = 3
_AS_GOOD = 0.02
_MOST_LIKELY = 2


def conversion(unit: str, wanted: str) -> Conversion | None:
    """Return the factor and offset that convert numbers of one unit to another; None if fedlit does
    not know them, as for currencies. Units may be quotients.

    Example:
        >>> conversion("lbs", "kg"), conversion("°F", "°C")[0] == 5 / 9
        ((0.45359237, 0.0), True)
        >>> conversion("mg/dl", "g/l"), conversion("$", "€")
        ((0.01, 0.0), None)
    """
    one, other = (_TO_CELSIUS.get(own.casefold()) for own in (unit, wanted))
    if one is not None and other is not None:
        return (one[0] / other[0], (one[1] - other[1]) / other[0])
    parts = unit.split("/")
    others = wanted.split("/")
    if len(parts) != len(others):
        return None
    factor = 1.0
    for place, (part, whole) in enumerate(zip(parts, others, strict=True)):
        times = _factor(part, whole)
        if times is None:
            return None
        factor = factor * times if place == 0 else factor / times
    return (float(f"{factor:.12g}"), 0.0)


def _factor(unit: str, wanted: str) -> float | None:
    """Return how many of one plain unit another one is."""
    one, other = (same_unit(own).replace("ul", "µl").casefold() for own in (unit, wanted))
    if one == other:
        return 1.0
    return next(
        (scale[one] / scale[other] for scale in _SCALES if one in scale and other in scale), None
    )


def likely_conversions(
    quartiles: Sequence[float], others: Sequence[float]
) -> dict[str, Conversion]:
    """Return the conversions, by name, that bring the quartiles (3,) of a client near those of
    another one.

    Example:
        >>> likely_conversions((140.0, 154.0, 172.0), (63.0, 70.0, 78.0))
        {'pounds to kilograms': (0.45359237, 0.0)}
    """
    distances = dict[str, float]()
    for name, (factor, offset) in UNWRITTEN.items():
        converted = [factor * own + offset for own in quartiles]
        if converted[0] <= others[2] and others[0] <= converted[2]:
            distances[name] = sum(
                abs(own - other) for own, other in zip(converted, others, strict=True)
            )
    near = sorted(distances, key=lambda name: distances[name])[:_MOST_LIKELY]
    size = abs(others[1])
    most = min(_CLOSE * size, _TIMES_WORSE * distances[near[0]] + _AS_GOOD * size) if near else 0.0
    return {name: UNWRITTEN[name] for name in near if distances[name] <= most}


def is_conversion(large: Sequence[float], small: Sequence[float]) -> bool:
    """Return whether some conversion makes the quartiles (3,) of a client those of another one, but
    for chance.
    """
    for factor, offset in UNWRITTEN.values():
        distance = sum(
            abs(factor * one + offset - other) for one, other in zip(large, small, strict=True)
        )
        if distance <= _SAME * abs(small[1]):
            return True
    return False


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
    kept = [own for own in missing if not isinstance(own, str)]
    everything = conversions.get(ANY_UNIT)
    if values.dtype.kind in "iuf":
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        factor, offset = everything or (1.0, 0.0)
        made = np.where(np.isin(numbers, kept), numbers, factor * numbers + offset)
        return pd.Series(made, values.index, name=values.name), []
    cells = Cells.of(values)
    known, _ = cells.without(missing)
    notation, _ = find_notation(known.texts, *marks)
    by_unit = {same_unit(unit): own for unit, own in conversions.items() if unit != ANY_UNIT}
    held = {*known.texts}
    texts = list[str]()
    met = set[str]()
    for text in cells.texts:
        written = split(text) if text in held else None
        unit = same_unit(written.unit) if written is not None else ""
        change = by_unit.get(unit, everything)
        number = _number(written, notation) if change is not None else np.nan
        if change is None or np.isnan(number) or number in kept:
            texts.append(text)
            continue
        met.add(unit)
        texts.append(f"{change[0] * number + change[1]:.15g}".replace(".", notation.decimal))
    taken = pd.Series(cells.take(np.array(texts, object)), values.index, name=values.name)
    unused = [unit for unit in by_unit if unit not in met]
    told = f"no cell is in {shorten(unused)}, which convert names"
    return taken, [Note(told, "recoded")] if unused else []


def _number(written: Written | None, notation: Notation) -> float:
    """Return the number of a text in whatever unit."""
    if written is None:
        return np.nan
    return Notation(notation.decimal, notation.thousands, written.unit).value(written)

"""Raw columns and what they hold: cells, kind, values and notes."""

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

ROWS = 60
NO_VALUE = "mean that there is no value"
UNSEEN = ["a", "a\u200b", "b\u00a0c"]
MONTHS = ("JAN", "FEB", "MAR")
Make = Callable[[int], Any]
Columns = dict[str, tuple[Make, str, Make | None, str]]
"""Name of the column → cells by row; the detected kind, or the reason for leaving it out; a typed
cell by row (None: as it stands; of a date its first part); and what a note says."""

NUMBERS: Columns = {
    "whole": (
        lambda n: str(n * 7 % 60),
        "numeric",
        lambda n: n * 7 % 60,
        "different value in each row",
    ),
    "stored as text": (lambda n: f"{n % 9 / 8}", "numeric", lambda n: n % 9 / 8, ""),
    "milligrams": (
        lambda n: f"{n % 9} mg",
        "numeric",
        lambda n: n % 9,
        "60 cells read as numbers: '0 mg' as 0",
    ),
    "areas": (lambda n: f"{n % 9} m²", "numeric", lambda n: n % 9, "'0 m²' as 0"),
    "some kilograms": (
        lambda n: f"{n % 9} kg" if n % 3 else n % 9,
        "numeric",
        lambda n: n % 9,
        "20 cells without",
    ),
    "percent": (lambda n: f"{n % 9 / 4} %", "numeric", lambda n: n % 9 / 4, "'0.0 %' as 0"),
    "price": (lambda n: f"€ {n % 9},50", "numeric", lambda n: n % 9 + 0.5, "'€ 0,50' as 0.5"),
    "francs": (
        lambda n: f"CHF {n % 9 + 1}'250.50",
        "numeric",
        lambda n: (n % 9 + 1) * 1000 + 250.5,
        "60 cells",
    ),
    "decimal commas": (lambda n: f"{n % 9},5", "numeric", lambda n: n % 9 + 0.5, "60 cells read"),
    "thousands": (
        lambda n: f"1,{n % 9:03d}",
        "numeric",
        lambda n: 1000 + n % 9,
        "if not, say decimal",
    ),
    "bounds": (
        lambda n: f"<{n % 9}" if n % 5 == 0 else n % 9,
        "numeric",
        lambda n: n % 9,
        "12 cells read",
    ),
    "dots": (
        lambda n: "." if n % 4 else n,
        "numeric",
        lambda n: np.nan if n % 4 else n,
        "'.' counts as missing",
    ),
    "errors": (
        lambda n: "#DIV/0!" if n % 9 == 0 else n % 9,
        "numeric",
        None,
        "counts as missing in errors (7)",
    ),
    "an odd word": (
        lambda n: "lost" if n % 3 else n,
        "numeric",
        lambda n: np.nan if n % 3 else n,
        "'lost' (40)",
    ),
    "a slip": (
        lambda n: "3,4" if n == 9 else f"{n}.7",
        "numeric",
        lambda n: np.nan if n == 9 else n + 0.7,
        "'3,4'",
    ),
    "span": (lambda n: pd.Timedelta(days=n % 9), "numeric", lambda n: n % 9 * 86400, ""),
    "mixed objects": (
        lambda n: n % 9 / 2 if n < 45 else str(n % 9 / 2),
        "numeric",
        lambda n: n % 9 / 2,
        "",
    ),
    "points": (
        lambda n: "1.583" if n % 2 else str(900 + n),
        "numeric",
        None,
        "'1.583' is read as 1.583, beside whole",
    ),
    "points and gaps": (
        lambda n: ["1.583", f"{900 + n}", "NA"][n % 3],
        "numeric",
        None,
        "'1.583' is read as 1.583",
    ),
    "Total": (lambda n: "Total" if n == 59 else n * 7 % 61, "numeric", None, "'Total' (1)"),
    "visit_number": (lambda n: n % 30, "numeric", None, ""),
    "age": (lambda n: n * 7 % 97, "numeric", lambda n: n * 7 % 97, "different value in each row"),
    "two units": (
        lambda n: f"{n} mg" if n % 2 else f"{n} g",
        "several units",
        None,
        "'g' (30 cells) and 'mg' (30",
    ),
    "three currencies": (
        lambda n: f"{['$', '€', '£'][n % 3]}{n}.50",
        "several units",
        None,
        "Convert them",
    ),
    "strengths": (
        lambda n: ["500 mg", "1 g", "250 mg"][n % 3],
        "categorical",
        None,
        "40 of its 60 values are numbers",
    ),
    "one unit": (
        lambda n: f"{n % 9} {['kg', 'Kg', 'KG'][n % 3]}",
        "numeric",
        lambda n: n % 9,
        "'1 Kg' as 1",
    ),
    "accounts": (
        lambda n: f"({n % 9}.25)" if n % 3 else f"{n % 9}.25",
        "numeric",
        None,
        "'(1.25)' as -1.25",
    ),
    "SAP": (
        lambda n: f"{n % 9},25-" if n % 3 else f"{n % 9},25",
        "numeric",
        None,
        "'1,25-' as -1.25",
    ),
    "in brackets": (lambda n: f"({n % 3 + 1})", "categorical", None, ""),
}

NUMBERS_OF_PARTS: Columns = {
    "stay": (
        lambda n: f"{n}:{n * 7 % 60:02d}",
        "numeric",
        lambda n: n * 3600 + n * 7 % 60 * 60,
        "is read in seconds",
    ),
    "one long stay": (
        lambda n: f"{26 if n == 9 else n % 5}:30",
        "numeric",
        lambda n: (26 if n == 9 else n % 5) * 3600 + 1800,
        "in seconds",
    ),
    "pandas' spans": (
        lambda n: str(pd.Timedelta(minutes=n * 99 - 99)),
        "numeric",
        lambda n: n * 5940 - 5940,
        "seconds",
    ),
    "ISO spans": (
        lambda n: f"P{n % 5}DT{n % 24}H",
        "numeric",
        lambda n: n % 5 * 86400 + n % 24 * 3600,
        "seconds",
    ),
    "hours in words": (
        lambda n: f"{n % 30}h {n % 60}m",
        "numeric",
        lambda n: n % 30 * 3600 + n % 60 * 60,
        "seconds",
    ),
    "height": (
        lambda n: f"{5 + n % 2}'{n % 12}\"",
        "numeric",
        lambda n: (5 + n % 2) * 12 + n % 12,
        "read in inches",
    ),
    "latitude": (
        lambda n: f"{n}.5{'NS'[n % 2]}",
        "numeric",
        lambda n: (n + 0.5) * (1 - n % 2 * 2),
        "below zero in the",
    ),
    "turnover": (
        lambda n: ["$1.5K", "$900K", "$2M"][n % 3],
        "numeric",
        lambda n: [1500, 9e5, 2e6][n % 3],
        "a million",
    ),
    "wards": (lambda n: f"{n % 9}{'WE'[n % 2]}", "categorical", None, ""),
    "sizes": (lambda n: f"{n % 9}{'KM'[n % 2]}", "categorical", None, ""),
}

NUMBERS_OR_NO_VALUE: Columns = {
    "-9": (lambda n: [-9, 3, 4, 5.5, 6][n % 5], "numeric", None, f"-9 (12 cells) {NO_VALUE}"),
    "99": (lambda n: 99 if n % 7 == 0 else n % 10, "numeric", None, f"99 (9 cells) {NO_VALUE}"),
    "-999": (
        lambda n: -999 if n % 5 == 0 else n % 10,
        "numeric",
        None,
        f"-999 (12 cells) {NO_VALUE}",
    ),
    "-1": (lambda n: -1 if n == 5 else 20 + n % 30, "numeric", None, NO_VALUE),
    "-1 to 3": (lambda n: n % 5 - 1, "numeric", None, ""),
    "up to 999": (lambda n: 980 + n % 20, "numeric", None, ""),
    "98 and 99": (
        lambda n: [98, 99][n % 2] if n % 7 == 0 else n % 12 + 1,
        "numeric",
        None,
        f"99 (4 cells) {NO_VALUE}",
    ),
    "-77, -88": (
        lambda n: [-77, -88][n % 2] if n % 7 == 0 else n % 6,
        "numeric",
        None,
        f"-77 (5 cells) {NO_VALUE}",
    ),
    "-8 and -9": (
        lambda n: [-8, -9][n % 2] if n % 7 == 0 else n % 40,
        "numeric",
        None,
        f"and -8 (5 cells) {NO_VALUE}",
    ),
    "income, -1": (
        lambda n: [-1, -2][n % 2] if n % 7 == 0 else n * 50,
        "numeric",
        None,
        f"-1 (5 cells) {NO_VALUE}",
    ),
    "scale": (lambda n: 9 if n % 7 == 0 else n % 5 + 1, "numeric", None, f"9 (9 cells) {NO_VALUE}"),
    "refused": (
        lambda n: 7 + n % 3 if n % 7 == 0 else n % 5 + 1,
        "numeric",
        None,
        f"9 (3 cells) {NO_VALUE}",
    ),
    "half glucose": (
        lambda n: 0 if n % 2 == 0 else 90 + n % 40,
        "numeric",
        None,
        f"0 (30 cells) {NO_VALUE}",
    ),
    "glucose": (
        lambda n: 0 if n % 9 == 0 else 90 + n % 40,
        "numeric",
        None,
        f"0 (7 cells) {NO_VALUE}",
    ),
    "a slip of 100": (
        lambda n: 11012 if n == 9 else 20 + n % 50,
        "numeric",
        None,
        "1 cell is over 8 standard",
    ),
    "children": (lambda n: 9 if n == 3 else min(n % 7, n % 11), "numeric", None, ""),
    "celsius": (lambda n: n % 31 - 9, "numeric", None, ""),
    "cigarettes": (lambda n: 0 if n % 9 == 0 else 5 + n % 35, "numeric", None, ""),
    "ten places": (lambda n: n % 10, "numeric", None, ""),
    "1900": (
        lambda n: f"2020-0{n % 9 + 1}-11" if n % 7 else "1900-01-01",
        "date",
        None,
        f"(9 cells) {NO_VALUE}",
    ),
    "20240101": (lambda n: 20240101 + n % 28, "numeric", None, "looks like a date"),
    "marks of two ways": (
        lambda n: ["5.249", "4,207"][n % 2],
        "numeric",
        lambda n: [5.249, 4207][n % 2],
        "'4,207'",
    ),
    "1.2k": (lambda n: [f"1.{n % 9}k", "894"][n % 2], "numeric", None, "If 'k' means a thousand"),
    "lakhs": (
        lambda n: f"1,23,{100 + n % 9}",
        "numeric",
        lambda n: 123_100 + n % 9,
        "60 cells read",
    ),
}

LEVELS: Columns = {
    "a rare level": (lambda n: "2. Black" if n == 7 else "1. White", "categorical", None, ""),
    "several words": (
        lambda n: ["1. Never Married", "2. Married", "3. Widowed"][n % 3],
        "categorical",
        None,
        "",
    ),
    "ranges": (lambda n: ["<=20", "20-50", ">50"][n % 3], "categorical", None, ""),
    "two bounds": (lambda n: ["<20", ">=20"][n % 2], "categorical", None, ""),
    "one bound": (lambda n: ["<20 %", "20 %", ">20 %"][n % 3], "categorical", None, ""),
    "beyond float64": (lambda n: 2**60 + n % 3, "categorical", lambda n: str(2**60 + n % 3), ""),
    "numbered": (lambda n: ["1 White", "2 Black"][n % 2], "categorical", None, ""),
    "one number": (
        lambda n: "4 mg" if n % 9 else "not done",
        "categorical",
        None,
        "is treated as text, though 53 of",
    ),
    "few numbers": (
        lambda n: f"{n}" if n < 12 else ["negative", "positive"][n % 2],
        "categorical",
        None,
        "",
    ),
    "boats": (
        lambda n: f"{n % 17}" if n % 9 else ["C", "D"][n % 2],
        "categorical",
        None,
        "'C' (4), 'D' (3) are",
    ),
    "ICD-9": (lambda n: ["008.45", "038.9", "428.0"][n % 3], "categorical", None, ""),
    "mixed decimals": (
        lambda n: ["250.00", "401.9", "428.0"][n % 3],
        "numeric",
        None,
        "may be a code",
    ),
    "dx_code": (lambda n: ["250.1", "401.9", "428.5"][n % 3], "numeric", None, "may be a code"),
    "two decimals": (lambda n: f"{n % 30 / 7:.2f}", "numeric", None, ""),
    "as programs": (lambda n: str(n % 30 / 8), "numeric", None, ""),
    "post code": (lambda n: f"0{n % 9}123", "categorical", None, ""),
    "long codes": (lambda n: f"990000000000000000000{n % 5:05d}", "categorical", None, ""),
    "letters": (lambda n: ["1a", "3c", "2b", "7d"][n % 4], "categorical", None, ""),
    "unseen letters": (
        lambda n: UNSEEN[n % 3],
        "categorical",
        lambda n: ["a", "a", "b c"][n % 3],
        "20 cells with",
    ),
    "nearly unique JSON": (
        lambda n: json.dumps({"dose": min(n, 55)}),
        "categorical",
        None,
        "56 different texts in 60",
    ),
    "signs": (lambda n: "+-"[n % 2], "categorical", None, ""),
    "yes or nothing": (lambda n: None if n % 3 else "yes", "categorical", None, "and 40 gaps"),
    "spellings": (
        lambda n: ["m", "f", "M "][n % 3],
        "categorical",
        lambda n: "mfm"[n % 3],
        "'m' = 'M'",
    ),
    "pressure": (
        lambda n: f"{100 + n % 55}/{60 + n % 55}",
        "categorical",
        None,
        "55 different texts in 60",
    ),
}

DATES: Columns = {
    "ja oder nein": (lambda n: ["Ja", "nein", "Ja "][n % 3], "boolean", lambda n: n % 3 != 1, ""),
    "y, n, 1, 0": (lambda n: "Yn10"[n % 4], "boolean", lambda n: n % 2 == 0, ""),
    "bool": (lambda n: n % 2 == 0, "boolean", None, ""),
    "day": (lambda n: f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}", "date", lambda n: n % 12 + 1, ""),
    "month or day": (
        lambda n: f"0{n % 9 + 1}/0{n % 7 + 1}/2024",
        "date",
        lambda n: n % 9 + 1,
        "is read as month/day",
    ),
    "day first": (lambda n: f"{n % 28 + 1}/0{n % 7 + 1}/2024", "date", lambda n: n % 7 + 1, ""),
    "short year": (lambda n: f"11.0{n % 7 + 1}.24", "date", lambda n: n % 7 + 1, ""),
    "US Excel": (
        lambda n: f"{n % 12 + 1}/{n % 28 + 1}/96 {n % 24}:38",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "noon": (
        lambda n: f"{n % 12 + 1}:30 {'AP'[n % 2]}M",
        "date",
        lambda n: (n + 1) % 12 + n % 2 * 12 + 0.5,
        "",
    ),
    "months": (
        lambda n: f"{['May', 'June'][n % 2]} 20{n % 9 + 10}",
        "date",
        lambda n: n % 9 + 2010,
        "",
    ),
    "US noon": (
        lambda n: f"{n % 12 + 1}/{n % 28 + 1}/1996 {n % 12 + 1}:38 PM",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "US or not": (
        lambda n: f"{n % 12 + 1}/{n % 12 + 1}/19 0{n % 9}:07:00",
        "date",
        None,
        "read as month/day",
    ),
    "German Excel": (
        lambda n: f"{n % 28 + 1}.{n % 12 + 1:02d}.19 0{n % 9}:15",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "with letters": (
        lambda n: f"{n % 28 + 1}-Feb-{10 + n % 9} 14:38",
        "date",
        lambda n: 2010 + n % 9,
        "",
    ),
    "SAS": (lambda n: f"{n % 28 + 1:02d}{MONTHS[n % 3]}2020", "date", lambda n: n % 3 + 1, ""),
    "SAS times": (
        lambda n: f"{n % 28 + 1:02d}{MONTHS[n % 3]}20:14:38:{n:02d}",
        "date",
        lambda n: n % 3 + 1,
        "",
    ),
    "month and year": (
        lambda n: f"{MONTHS[n % 3].title()}-{10 + n % 9}",
        "date",
        lambda n: 2010 + n % 9,
        "",
    ),
    "born": (lambda n: f"11.0{n % 7 + 1}.{64 + n % 9}", "date", None, "years have two digits"),
    "clock": (lambda n: f"{n % 24:02d}:30", "date", lambda n: n % 24 + 0.5, ""),
    "moment": (lambda n: pd.Timestamp(2020 + n, 1, 1), "date", lambda n: 2020 + n, ""),
    "offset": (
        lambda n: f"2024-01-{n % 28 + 1:02d} 23:00+02:00",
        "date",
        lambda n: n % 28 % 7,
        "of Greenwich",
    ),
    "zone": (
        lambda n: pd.Timestamp(2020 + n, 7, 1, tz="Europe/Rome"),
        "date",
        lambda n: 2020 + n,
        "of Greenwich",
    ),
    "a wrong day": (
        lambda n: "2020-13-45" if n == 7 else f"{2001 + n}-01-1{n % 7}",
        "date",
        None,
        "'2020-13-45' (1)",
    ),
    "several formats": (
        lambda n: [f"2024-01-0{n % 8 + 1}", f"{n % 9}.1.24"][n % 2],
        "categorical",
        None,
        "format",
    ),
    "stamps": (lambda n: ["20240131T101010", "20240201T111111"][n % 2], "categorical", None, ""),
}

LEFT_OUT: Columns = {
    "row": (lambda n: n + 7, "identifier", None, "an identifier"),
    "pid": (lambda n: 10_000 + n * 7919 % 4001, "identifier", None, "identifier"),
    "Patient ID": (lambda n: f"{10_000 + n * 7919 % 4001}", "identifier", None, "identifier"),
    "caseNo": (lambda n: 10_000 + n * 7919 % 4001, "identifier", None, ""),
    "phone": (
        lambda n: "lost" if n == 4 else f"{1000 + n * 7919 % 4001}",
        "identifier",
        None,
        "'lost' (1)",
    ),
    "person_id": (lambda n: 1000 + n // 2, "identifier", None, "split: {group: person_id}"),
    "code": (lambda n: str(uuid.UUID(int=n * 2**90 + 7)), "identifier", None, ""),
    "26 digits": (lambda n: f"990000000000000000000{n:05d}", "identifier", None, ""),
    "case_no": (lambda n: f"{2020 + n % 5}/{n + 1}", "identifier", None, "such as '2020/1'"),
    "file": (lambda n: f"{2020 + n % 5}/{n:04}", "identifier", None, "such as '2020/0000'"),
    "all formats": (
        lambda n: [f"{2000 + n}-01-31", f"1.1.{2000 + n}"][n % 2],
        "unread dates",
        None,
        "no one format",
    ),
    "SSN": (lambda n: f"123-{n:02d}-{6789 + n}", "identifier", None, ""),
    "remark": (lambda n: f"patient {n} felt rather well today", "free text", None, ""),
    "site": (lambda n: "Bern", "constant", None, "the single value 'Bern'"),
    "nothing": (lambda n: None, "empty", None, ""),
    "list": (lambda n: [n, 1], "nested values", None, ""),
    "raw": (lambda n: bytes([n]), "binary values", None, ""),
    "before pandas": (
        lambda n: np.datetime64("0700-01-01", "s") + np.timedelta64(n, "D"),
        "date",
        None,
        "",
    ),
    "decimals": (lambda n: decimal.Decimal(n % 9) / 4, "numeric", lambda n: n % 9 / 4, ""),
    "times": (lambda n: datetime.time(n % 24, n), "date", lambda n: n % 24 + n / 60, ""),
    "complex": (lambda n: complex(n, 1), "complex numbers", None, ""),
}

COLUMNS: Columns = {
    **NUMBERS,
    **NUMBERS_OF_PARTS,
    **NUMBERS_OR_NO_VALUE,
    **LEVELS,
    **DATES,
    **LEFT_OUT,
}


def made(name: str, rows: range = range(ROWS)) -> pd.DataFrame:
    return pd.DataFrame({name: [COLUMNS[name][0](n) for n in rows]})

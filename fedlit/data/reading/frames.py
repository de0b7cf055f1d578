"""Takes frames of other libraries (Polars, Arrow, DuckDB) as frames of pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd


def frame_of(rows: Any) -> Any:
    """Return a frame of another library as one of pandas, with the types that a Parquet file of it
    would give.

    Args:
        rows: a frame of pandas, or whatever hands over its columns by ``__arrow_c_stream__``.
            Anything else is returned as it is.

    Example:
        >>> import pyarrow as pa
        >>> frame_of(pa.table({"age": [40, None], "sex": ["m", "f"]})).dtypes.astype(str).to_dict()
        {'age': 'Int64', 'sex': 'str'}
    """
    if isinstance(rows, pd.DataFrame) or not hasattr(rows, "__arrow_c_stream__"):
        return rows
    import pyarrow as pa

    from fedlit.data.reading.formats import series_of

    table = pa.table(rows)
    frame = pd.DataFrame(
        {position: series_of(column) for position, column in enumerate(table.columns)}, copy=False
    )
    return frame.set_axis(table.column_names, axis=1)

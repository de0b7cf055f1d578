"""Reads a client's table from delimited text, Parquet, Excel or SQL, strictly and with bounded
memory.
"""

from fedlit.data.reading.formats import check_url
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.table import Raw, read_table

__all__ = ["Raw", "ReadOptions", "check_url", "read_table"]

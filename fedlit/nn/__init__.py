"""Networks and their building blocks."""

# configurations and saved runs may name a class as fedlit.nn.<name>: it is that of the one list
from fedlit import __getattr__ as __getattr__  # type: ignore[attr-defined]

"""Networks and their building blocks."""

# Configurations and saved runs may name a class as fedlit.nn.<name>; fedlit has the one list of
# names.
from fedlit import __getattr__ as __getattr__  # type: ignore[attr-defined]

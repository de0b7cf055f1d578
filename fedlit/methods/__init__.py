"""Methods that need more than a configuration. Each paper has its own file."""

# Configurations and saved runs may name a class as fedlit.methods.<name>; fedlit has the one list
# of names.
from fedlit import __getattr__ as __getattr__  # type: ignore[attr-defined]

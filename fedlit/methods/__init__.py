"""Methods that need more than a configuration. Each paper has its own file."""

# configurations and saved runs may name a class as fedlit.methods.<name>: it is that of the one
# list
from fedlit import __getattr__ as __getattr__  # type: ignore[attr-defined]

"""Aggregation rules: what clients receive, given what they sent. One idea per file."""

# configurations and saved runs may name a rule as fedlit.exchange.rules.GrowForest: it is that of
# the one list
from fedlit import __getattr__ as __getattr__  # type: ignore[attr-defined]

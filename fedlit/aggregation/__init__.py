"""Rules: what clients receive, given what they sent."""

from fedlit.aggregation.mean import Mean, mean
from fedlit.aggregation.rule import Rule, Update

__all__ = ["Mean", "Rule", "Update", "mean"]

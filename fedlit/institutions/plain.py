"""Plain data that coordinator and sites send each other, by what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
"""A message, a part of one, or a line of a journal. The functions that read one from the wire or a file
have checked its form, so that others may rely on the types of its values."""
Facts = Mapping[str, Any]
"""Maps sites to what each sends about a topic. :func:`fedlit.institutions.topics.check_facts` has
checked its form."""
FactsOfTopics = Mapping[str, Facts]
"""Maps topics, or sites, to facts."""

"""Docstrings for a reader of the site: roles as links, examples as code.

A role, such as :class:`Engine` or :func:`~fedlit.sharing.select`, names what is looked up from
where it stands, as Python does. What exists but is not in the reference is shown as code; what does
not exist is a warning of the builder, which names the docstring.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|data|exc|mod):`(~?)([\w.]+)`")
EXAMPLES = (  # griffe knows the section `Examples:`, and doctests only there
    (re.compile(r"^Example:$", re.MULTILINE), "Examples:"),
    (re.compile(r"^Example::$", re.MULTILINE), "**Example**"),
    (re.compile(r"^(>>> .*(?:\n.+)*)", re.MULTILINE), r"```pycon\n\1\n```"),
)


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of a package."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called when everything is loaded."""
        waiting: list[griffe.Object] = [pkg]
        while waiting:
            there = waiting.pop()
            if there.docstring:
                there.docstring.value = rewritten(there.docstring.value, there)
            waiting += [
                member for member in there.members.values() if isinstance(member, griffe.Object)
            ]


def rewritten(text: str, there: griffe.Object) -> str:
    """A docstring in the Markdown that mkdocstrings expects."""
    for pattern, replacement in EXAMPLES:
        text = pattern.sub(replacement, text)
    return ROLE.sub(lambda role: link(role[2], bool(role[1]), there), text)


def link(name: str, short: bool, there: griffe.Object) -> str:
    """A link to what a docstring names; optional, as it need not be in the reference."""
    shown = name.rpartition(".")[2] if short else name
    try:
        first, _, rest = name.partition(".")
        path = (
            name
            if first == there.package.name
            else ".".join(filter(None, [there.resolve(first), rest]))
        )
        path = there.modules_collection[path].canonical_path
    except (griffe.NameResolutionError, griffe.AliasResolutionError, KeyError):
        return f'<autoref identifier="{name}, in the docstring of {there.path}">`{shown}`</autoref>'
    return f'<autoref optional identifier="{path}">`{shown}`</autoref>'

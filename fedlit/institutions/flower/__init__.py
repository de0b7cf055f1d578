"""All that uses Flower: its interface for nodes, the state of its SuperLink, and its Grid.

Most of what is used here is private to Flower, whose version is therefore pinned
(:data:`fedlit.institutions.extra.FLOWER`). Import these modules inside
:func:`fedlit.institutions.extra.needs_flower`.
"""

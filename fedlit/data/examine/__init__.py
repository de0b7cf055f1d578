"""Examines clients' tables, alone and together, and proposes what to write about them. Pure
functions of tables.
"""

from fedlit.data.examine.page import Page, examine

__all__ = ["Page", "examine"]

"""What is odd in clients' tables, alone and beside each other, and what to write about it. Pure functions of tables."""

from fedlit.data.examine.page import Page, examine

__all__ = ["Page", "examine"]

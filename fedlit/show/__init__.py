"""Draws pictures and formats text tables from frames."""

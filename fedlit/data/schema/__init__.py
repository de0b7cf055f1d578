"""Detects what raw columns hold: numbers, categories, ordered categories, dates, or values that are
left out.
"""

"""Studies: comparisons of many methods with many seeds, and of what each client gains from
federation.
"""

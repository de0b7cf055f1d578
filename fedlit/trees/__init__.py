"""Extremely randomised trees that parties grow together: draws, sums, splits and finished trees.
NumPy only.
"""

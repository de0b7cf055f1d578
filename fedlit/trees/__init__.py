"""Extremely randomised trees that several parties grow: draws, sums, splits and finished trees. NumPy, no network."""

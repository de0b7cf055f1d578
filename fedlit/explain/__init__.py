"""What a federation had to bend to make each client's table fit, shown to a person."""

CORRECTIONS = "corrections.csv"
"""Of a run's folder: what its clients correct, epoch by epoch."""

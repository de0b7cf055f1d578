"""Training: the federation, the coordinator that steps it, scores, logs."""

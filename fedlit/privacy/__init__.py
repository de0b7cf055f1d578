"""Privacy between institutions: sums that hide their terms, and updates with noise."""

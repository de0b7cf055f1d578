"""Shows the user how each client's table was corrected to fit the federation."""

CORRECTIONS = "corrections.csv"
"""Of a run's folder: what its clients correct, at the end of training."""

ALL = "all"
"""The name of a correction that changes all outputs of a client alike."""

EFFECTS = "effects.csv"
"""Of a run's folder: effects, variances and clients' own effects of a mixed model."""

PATHS = "paths.csv"
"""Of a run's folder: round, first, second, path, u, loss along paths between clients' models, of
the last exchange."""

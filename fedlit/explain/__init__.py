"""Shows the user how each client's table was corrected to fit the federation."""

CORRECTIONS = "corrections.csv"
"""The file of a run's folder with the corrections of its clients at the end of training."""

ALL = "all"
"""The name of a correction that changes all outputs of a client in the same way."""

EFFECTS = "effects.csv"
"""The file of a run's folder with effects, variances and clients' random effects of a mixed
model."""

PATHS = "paths.csv"
"""The file of a run's folder with losses along paths between clients' models, of the last exchange.
Columns: round, first, second, path, u, loss."""

"""Studies: many methods, many seeds, and what federation gives each client."""

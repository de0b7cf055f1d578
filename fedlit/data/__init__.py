"""The data side: sources, encoding, batches."""

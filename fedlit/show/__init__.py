"""Text tables and pictures: frames in, pictures out."""

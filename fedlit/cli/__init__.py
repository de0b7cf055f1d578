"""The command line: all exit codes, and what is printed."""

"""What to make of several models' predictions of the same rows: weights, admission.

Pure functions: arrays in, arrays and numbers out. They know no run, no client and no file.
"""

"""The same work, done by fedlit, a plain loop and other frameworks; ``peers.py`` compares them.

A module here is one framework. Its function ``train`` marks the clock when the first round begins
and after each round, and returns the networks that it ends with: one, or one for each client.
"""

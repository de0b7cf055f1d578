"""Runs of several parts: local models of each client and federated ones, trained on folds and mixed
for each client.
"""

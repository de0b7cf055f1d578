"""A run of several parts: models of each client's own and federated ones, trained on folds, mixed for each client."""

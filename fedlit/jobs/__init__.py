"""Trainings as jobs: what studies and mixtures have in common. A job is planned as plain data, runs
in this process or in a worker process, and leaves a record in its folder.
"""

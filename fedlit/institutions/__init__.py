"""Federations whose clients are at institutions: certificates, folders, and the processes that use
the network.
"""

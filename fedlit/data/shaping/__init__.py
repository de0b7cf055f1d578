"""Federations derived from others: rows dealt to new clients, columns split, faults and concepts
injected.
"""

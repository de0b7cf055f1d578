"""Federations that are made from others: rows dealt to clients, columns split, faults and concepts planted."""

"""Federations whose clients live at institutions: certificates, folders, the processes that speak over the network."""

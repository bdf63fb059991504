"""Collective communication between the ranks of a group."""

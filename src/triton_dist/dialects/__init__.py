"""Vocabularies of other projects over this package's symmetric heap."""

"""Data only: the catalog of known models."""

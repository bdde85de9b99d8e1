"""Drafters: whatever can propose the next tokens cheaply."""

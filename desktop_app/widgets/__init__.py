"""The window: all that needs Qt. What it shows and does is computed without it, one folder up."""

"""Compares recipes on one model: size, distance from the source, perplexity, and the duration of passes by width.

Usage: python benchmarks/recipes.py SOURCE [RECIPE ...]

`SOURCE` is a GGUF file or a Hugging Face folder. Each recipe is exported into a temporary folder, compared with the
source on the shipped text sample, timed (medians, on all cores), and removed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pilotfish.export.quantize import parse_recipe
from pilotfish.export.recipe_choice import measure_recipes, table

DEFAULT = ("fp32", "source", "int8", "int8-b128", "w8a8", "w8a16", "int4-mixed", "int4", "int4-b128")


def main() -> None:
    """Measures all recipes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("recipes", nargs="*", default=DEFAULT)
    arguments = parser.parse_args()
    recipes = [parse_recipe(text) for text in arguments.recipes]
    with tempfile.TemporaryDirectory() as cache:
        print(table(measure_recipes(arguments.source, recipes, Path(cache), lambda what, done, total: None)))


if __name__ == "__main__":
    main()

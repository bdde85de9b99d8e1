"""Tokenizers that are nearly those of the tiny models."""

from __future__ import annotations

import json


def with_other_texts(tokenizer_json: str, number: int) -> str:
    """The tokenizer with the texts of its last `number` tokens changed."""
    tokenizer = json.loads(tokenizer_json)
    ids = tokenizer["model"]["vocab"]
    for text in sorted(ids, key=ids.get)[-number:]:
        ids[f"~{text}~"] = ids.pop(text)
    tokenizer["model"]["merges"] = []
    return json.dumps(tokenizer)

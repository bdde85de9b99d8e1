"""Which tokens a text is mostly made of: those that the trimmed head of a draft keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pilotfish.export.pairing import vocabulary_of
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.runtime.errors import OptionError


def frequent_ids(files: TokenizerFiles, num_ids: int, texts: Iterable[str] = ()) -> NDArray[np.int64]:
    """The `num_ids` token ids that are most frequent in `texts`, ascending; among them always those that end a text.

    Of equally frequent tokens, and so of all if there is no text, those with the lower ids are taken: a vocabulary that
    was learnt by merging pairs is numbered by how frequent they were where it was learnt. `OptionError` if there are no
    so many tokens.
    """
    is_token = check_num_ids(files, num_ids)
    tokenizer = Tokenizer.from_str(files.tokenizer_json)
    counts = np.zeros(len(is_token), np.int64)
    for text in texts:
        counts += np.bincount(tokenizer.encode(text, add_special_tokens=False).ids, minlength=len(counts))
    counts[list(files.eos_token_ids)] = np.iinfo(np.int64).max
    counts[~is_token] = -1
    return np.sort(np.argsort(-counts, kind="stable")[:num_ids]).astype(np.int64)


def check_num_ids(files: TokenizerFiles, num_ids: int) -> NDArray[np.bool_]:
    """`OptionError` unless a draft can have `num_ids` of the tokens; returns which ids are tokens (V,)."""
    is_token = np.array([text is not None for text in vocabulary_of(files.tokenizer_json)])
    least, most = len(files.eos_token_ids) + 1, int(is_token.sum())
    if not least <= num_ids <= most:
        raise OptionError(f"a draft vocabulary of {num_ids} tokens is not between {least} and the model's {most}")
    return is_token


def read_texts(paths: Sequence[Path]) -> list[str]:
    """The texts of files; `OptionError` names one that cannot be read."""
    texts = []
    for path in paths:
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"{path} cannot be read as a text in UTF-8: {error}") from error
    return texts

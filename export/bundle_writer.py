"""Writes a bundle: aside first, renamed when it is complete, so that a half-written one never looks whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pilotfish.export.genai import write_genai
from pilotfish.export.heads import write_heads
from pilotfish.export.pairing import pair_drafts, vocabulary_of
from pilotfish.export.parity import check, measure_model
from pilotfish.export.provenance import provenance_of
from pilotfish.export.quantize import Recipe
from pilotfish.export.sources import Source, open_source
from pilotfish.export.staging import disk_errors, require_free_space
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.export.weight_file import stored_bytes
from pilotfish.runtime.bundle import (
    MANIFEST,
    Bundle,
    FileEntry,
    Manifest,
    ModelEntry,
    ParityReport,
    TokenizerEntry,
    by_role,
    load_bundle,
    manifest_to_json,
)
from pilotfish.runtime.errors import DeviceError, OptionError
from pilotfish.runtime.rows import read_head_ids
from pilotfish.runtime.session import check_device, import_onnxruntime

# called with what is being done, such as "exporting target", the weights done so far, and all weights of it
Progress = Callable[[str, int, int], None]


def write_bundle(
    target: Source,
    draft: Source | None,
    output: Path,
    progress: Progress = lambda what, done, total: None,
    *,
    lower_drafts: Sequence[Source] = (),
    verify: bool = True,
    genai: bool = False,
) -> Path:
    """Exports a target and, if there is one, its draft into the new folder `output`, and returns it.

    Of `lower_drafts` the first drafts for the draft, each further one for the one before it.

    Each graph is compared with its source, unless `verify` is false; the manifest says either. With `genai`,
    onnxruntime-genai can run the models too. A draft that does not share the target's vocabulary keeps its tokenizer.
    Raises `PairingError` if it has none that could pass text, `OptionError` if `output` is there already, `ParityError`
    if a graph is too far from its source, and `StorageError` if the folder cannot be written or the disk is full; then
    nothing is left.
    """
    drafts = (*((draft,) if draft else ()), *lower_drafts)
    models = by_role(target, drafts)
    if verify:  # what that needs is better missed now than after minutes of work
        import_onnxruntime()
        if any(source.recipe.floats == "bfloat16" for source in models.values()):
            _need_cuda()
    if output.exists():
        raise OptionError(f"{output} exists already; delete it or choose another folder")
    pairings = pair_drafts(target.tokenizer.tokenizer_json, [draft.tokenizer.tokenizer_json for draft in drafts])
    tokenizers = {"target": target.tokenizer}
    if draft is not None and pairings[0].passes_text:
        tokenizers["draft"] = draft.tokenizer
    num_bytes = sum(len(files.tokenizer_json.encode()) for files in tokenizers.values())
    num_bytes += sum(source.num_bytes for source in models.values())
    with disk_errors(output, num_bytes), _aside(output, num_bytes) as folder:
        masked_ids = by_role((), [pairing.masked_ids for pairing in pairings])
        manifest = _write_files(folder, models, tokenizers, masked_ids, progress)
        if genai:
            manifest = _with_genai(folder, manifest, vocabulary_of(target.tokenizer.tokenizer_json))
        _write_manifest(folder, manifest)
        reports = {
            role: _verified(folder, role, source, progress) if verify else ParityReport(verified=False)
            for role, source in models.items()
        }
        entries = {role: replace(entry, parity=reports[role]) for role, entry in manifest.models.items()}
        _write_manifest(folder, manifest.with_models(entries))
    return output


def _need_cuda() -> None:
    try:
        check_device("cuda")
    except DeviceError as error:
        raise OptionError(
            "a graph in bfloat16 can be compared with its source on CUDA only, which this ONNX Runtime lacks; "
            "take fp16 instead of bf16, or skip the comparison with --skip-verify"
        ) from error


def write_alone(path: Path, recipe: Recipe, output: Path, label: str, progress: Progress) -> Bundle:
    """Exports the model at `path` as a bundle of its own, for a measurement, with one `label` for all its progress."""
    with closing(open_source(path, recipe)) as source:
        return load_bundle(write_bundle(source, None, output, lambda _, done, total: progress(label, done, total)))


def _write_files(
    folder: Path, models: Mapping[str, Source], tokenizers: Mapping[str, TokenizerFiles],
    masked_ids: Mapping[str, tuple[int, ...]], progress: Progress,
) -> Manifest:  # fmt: skip
    entries, files = dict[str, ModelEntry](), dict[str, str]()
    for role, source in models.items():
        digests, entry = source.write(folder, role, _counting(progress, f"exporting {role}", source))
        files |= digests
        entries[role] = replace(entry, source={**_origin(source.path), **entry.source})
    written = {role: _write_tokenizer(folder, role, files) for role, files in tokenizers.items()}
    of_drafts = written.get("draft", written["target"])
    for role, entry in entries.items():  # not before all are written: a draft may be made of the target's graph
        graph_path, of_role = folder / entry.graph, written["target"] if role == "target" else of_drafts
        head_ids = read_head_ids(graph_path.with_name(entry.head_ids), entry.vocab_size) if entry.head_ids else None
        heads, num_largest = write_heads(graph_path, min(of_role.num_tokens, entry.vocab_size), head_ids)
        weight_bytes = stored_bytes(folder / entry.graph)
        entries[role] = replace(
            entry, heads=heads, num_largest_logits=num_largest, masked_ids=masked_ids[role], weight_bytes=weight_bytes
        )  # fmt: skip
    return Manifest(
        created_by=f"pilotfish {version('pilotfish')}",
        target=entries.pop("target"),
        drafts=tuple(entries.values()),
        tokenizer=written["target"],
        draft_tokenizer=written.get("draft"),
        files=_file_entries(folder, files),
    )


def _with_genai(folder: Path, manifest: Manifest, texts: Sequence[str | None]) -> Manifest:
    write_genai(folder, manifest, texts)
    known = {name: entry.sha256 for name, entry in manifest.files.items()}
    return replace(manifest, files=_file_entries(folder, known))


def _verified(folder: Path, role: str, source: Source, progress: Progress) -> ParityReport:
    bundle, what = load_bundle(folder), f"verifying {role}"
    model = bundle.manifest.models[role]
    report = measure_model(bundle, model, source, _counting(progress, what, source))
    check(report, source.recipe, role)
    progress(what, source.num_weights, source.num_weights)
    return report


def _counting(progress: Progress, what: str, source: Source) -> Callable[[int], None]:
    done, total = 0, source.num_weights

    def advance(num_weights: int) -> None:
        nonlocal done
        done += num_weights
        progress(what, done, total)

    return advance


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_text(manifest_to_json(manifest), encoding="utf-8")


def _origin(path: Path) -> dict[str, str]:
    """What a manifest records of a source: its name, checksum, licence, repository and revision, as far as known."""
    known = provenance_of(path).to_dict() if path.exists() else {}
    return known | {"name": path.name} | ({"sha256": sha256_of(path)} if path.is_file() else {})


def _write_tokenizer(folder: Path, role: str, files: TokenizerFiles) -> TokenizerEntry:
    """Writes the target's tokenizer and chat template into the bundle's own folder, or a draft's into the draft's."""
    texts = vocabulary_of(files.tokenizer_json)
    name = "tokenizer.json" if role == "target" else f"{role}/tokenizer.json"
    (folder / name).write_text(files.tokenizer_json, encoding="utf-8")
    template = files.chat_template if role == "target" else None  # a draft reads what the target's template wrote
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return TokenizerEntry(
        file=name,
        num_tokens=len(texts),
        end_token_ids=files.eos_token_ids,
        chat_template="chat_template.jinja" if template is not None else None,
        bos_token=files.bos_token,
        eos_token=texts[files.eos_token_ids[0]] if files.eos_token_ids else None,
        add_bos=files.add_bos,
    )


def _file_entries(folder: Path, known: dict[str, str]) -> dict[str, FileEntry]:
    entries = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        entries[name] = FileEntry(path.stat().st_size, known.get(name) or sha256_of(path))
    return entries


@contextmanager
def _aside(output: Path, num_bytes: int) -> Iterator[Path]:
    """A hidden folder beside `output` that becomes `output` if the block succeeds and vanishes if it does not."""
    require_free_space(output, num_bytes)
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.with_name(f".{output.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)  # left by an export that was killed
    folder.mkdir()
    try:
        yield folder
        os.replace(folder, output)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def sha256_of(path: Path) -> str:
    """The checksum of a file, as the manifest records it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

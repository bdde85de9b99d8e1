"""Looks at a finished bundle: are its files those that were written, and do its graphs still compute what they did?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pilotfish.export.bundle_writer import sha256_of
from pilotfish.export.first_layers import made_again
from pilotfish.export.parity import check, measure_model
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import Source
from pilotfish.runtime.bundle import Bundle, ParityReport
from pilotfish.runtime.errors import BundleError, OptionError
from pilotfish.runtime.text_table import text_table

HEADINGS = (
    "model", "recipe", "measured", ">tokens", ">mean KL", ">max KL", ">top-1", ">perplexity", ">of source", ">cached",
    ">block", ">rollback",
)  # fmt: skip


def check_files(bundle: Bundle) -> None:
    """`BundleError` that names every file whose content is not what the manifest says."""
    changed = [name for name, entry in bundle.manifest.files.items() if sha256_of(bundle.path / name) != entry.sha256]
    if changed:
        raise BundleError(
            f"{bundle.path}: {', '.join(changed)} changed since the export (another SHA-256 than in the manifest); "
            "export the bundle again"
        )


def check_roles(bundle: Bundle, roles: Collection[str]) -> None:
    """`OptionError` if one of `roles` is of no model of this bundle."""
    for role in roles:
        if role not in bundle.manifest.models:
            option = role.split("-")[0]
            raise OptionError(f"{bundle.path} has no {role}; leave --{option} out")


def measure_bundle(bundle: Bundle, sources: Mapping[str, Source]) -> dict[str, ParityReport]:
    """Measures every model, by role; those that `sources` has by role also against their source.

    The source of a draft that was made of the target's layers is the target's.
    """
    models = bundle.manifest.models
    sources = {role: made_again(source, models[role]) for role, source in sources.items()}
    return {role: measure_model(bundle, model, sources.get(role)) for role, model in models.items()}


def check_reports(bundle: Bundle, reports: Mapping[str, ParityReport]) -> None:
    """`ParityError` if the figures of a model are worse than its recipe explains."""
    for role, model in bundle.manifest.models.items():
        check(reports[role], parse_recipe(model.recipe), role)


def comparison(bundle: Bundle, reports: Mapping[str, ParityReport]) -> str:
    """A table of the figures that the bundle records and of those measured now."""
    rows = []
    for role, model in bundle.manifest.models.items():
        rows.append((role, model.recipe, "at export", *_cells(model.parity)))
        rows.append((role, model.recipe, "now", *_cells(reports[role])))
    return text_table(HEADINGS, rows)


def _cells(report: ParityReport | None) -> tuple[str, ...]:
    if report is None or not report.verified:
        return ("not verified", *("-" for _ in HEADINGS[4:]))
    return (
        str(report.num_tokens),
        _cell(report.mean_kl, ".2g"),
        _cell(report.max_kl, ".2g"),
        _cell(report.top1_agreement, ".1%"),
        _cell(report.perplexity, ".2f"),
        _cell(report.reference_perplexity, ".2f"),
        _cell(report.cached_equals_uncached, ".2g"),
        _cell(report.block_equals_single, ".2g"),
        _cell(report.after_rollback, ".2g"),
    )


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

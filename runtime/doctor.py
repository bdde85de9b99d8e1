"""`pilotfish doctor`: what this machine offers, and what stands in the way, each problem with its remedy.

`machine.collect` finds the facts and `examine` judges them, so each judgement can be tried on the facts of any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from pilotfish.runtime.machine import EXTRAS, LIBRARIES, RUNTIMES, Facts, collect
from pilotfish.runtime.providers import PROVIDERS

PROBLEM_FOUND = 1
LEAST_FREE_BYTES = 1 << 30  # of memory or disk: less holds no pair of models worth speculating with
LEAST_ONNXRUNTIME = (1, 31, 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `remedy` is empty unless this is a problem, or something optional that is not there."""

    subject: str
    text: str
    remedy: str = ""
    is_problem: bool = False


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Checks this machine: versions, devices, threads, memory, disk. Exit code 1 if something needs mending."""
    findings = examine(collect())
    num_problems = sum(finding.is_problem for finding in findings)
    if as_json:
        print(json.dumps({"num_problems": num_problems, "findings": [asdict(each) for each in findings]}))  # noqa: T201
    else:
        print("\n".join(line(finding) for finding in findings))  # noqa: T201
        print(f"\n{num_problems} problems" if num_problems != 1 else "\n1 problem")  # noqa: T201
    if num_problems:
        raise typer.Exit(PROBLEM_FOUND)


def line(finding: Finding) -> str:
    """A finding as it is printed."""
    text = f"{'PROBLEM' if finding.is_problem else 'ok     '}  {finding.subject}: {finding.text}"
    return f"{text}\n         → {finding.remedy}" if finding.remedy else text


def examine(facts: Facts) -> list[Finding]:
    """The report on a machine."""
    return [
        Finding("system", f"{facts.system}, Python {facts.python}"),
        Finding(
            "libraries", ", ".join(f"{name} {facts.versions[name]}" for name in LIBRARIES if name in facts.versions)
        ),
        *_runtime(facts),
        *_cuda(facts),
        _cores(facts),
        _memory(facts),
        _cache(facts),
        *_extras(facts),
    ]


def _runtime(facts: Facts) -> Iterator[Finding]:
    subject, installed = "ONNX Runtime", [name for name in RUNTIMES if name in facts.versions]
    named = " and ".join(f"{name} {facts.versions[name]}" for name in installed)
    if len(installed) > 1:
        remedy = (
            f"they overwrite each other's files; run `pip uninstall {' '.join(installed)}`, "
            "then `pip install 'pilotfish[cpu]'` or `pip install 'pilotfish[cuda]'`, never both"
        )
        yield Finding(subject, f"{named} are both installed", remedy, is_problem=True)
    if facts.import_fault:
        remedy = "run `pip install 'pilotfish[cpu]'`, or `pip install 'pilotfish[cuda]'` for an NVIDIA GPU (never both)"
        yield Finding(subject, facts.import_fault, remedy, is_problem=True)
        return
    if len(installed) == 1:
        is_old = any(_release(facts.versions[name]) < LEAST_ONNXRUNTIME for name in installed)
        least = ".".join(map(str, LEAST_ONNXRUNTIME))
        remedy = f"run `pip install --upgrade '{installed[0]}>={least}'`" if is_old else ""
        yield Finding(subject, f"{named} is too old, {least} is needed" if is_old else named, remedy, is_old)
    devices = [device for device, provider in PROVIDERS.items() if provider in facts.providers]
    yield Finding("providers", f"{', '.join(facts.providers)} (--device {', '.join(devices)})")


def _cuda(facts: Facts) -> Iterator[Finding]:
    for subject, found, is_wanted in (("CUDA", facts.cuda, True), ("TensorRT", facts.tensorrt, False)):
        if found is None:
            continue
        if found.is_open:
            yield Finding(subject, "a session opens and computes")
            continue
        detail = f" ({found.detail})" if found.detail else ""
        text = f"is listed, but no session can be opened: {found.cause}{detail}"
        yield Finding(subject, text, found.remedy if is_wanted else f"if wanted: {found.remedy}", is_wanted)


def _cores(facts: Facts) -> Finding:
    text = f"{facts.num_cores} logical cores"
    if facts.num_usable_cores >= facts.num_cores:
        return Finding("cores", text)
    remedy = f"ONNX Runtime may start more threads than can run; add --threads {facts.num_usable_cores}"
    return Finding("cores", f"{text}, of which this process may use {facts.num_usable_cores}", remedy)


def _memory(facts: Facts) -> Finding:
    if facts.free_memory_bytes is None:
        return Finding("memory", "free memory cannot be told on this system")
    is_short = facts.free_memory_bytes < LEAST_FREE_BYTES
    remedy = "end other programs, or take a smaller model, recipe (int4) or --context" if is_short else ""
    return Finding("memory", f"{facts.free_memory_bytes / 1e9:.1f} GB free", remedy, is_short)


def _cache(facts: Facts) -> Finding:
    if facts.cache_fault:
        remedy = "make it writable, or set PILOTFISH_CACHE to another folder"
        return Finding("cache", f"{facts.cache}: {facts.cache_fault}", remedy, is_problem=True)
    free = facts.cache_free_bytes
    is_short = free is not None and free < LEAST_FREE_BYTES
    remedy = "free some space (`pilotfish ls` shows what is there), or set PILOTFISH_CACHE" if is_short else ""
    return Finding("cache", f"{facts.cache}, {(free or 0) / 1e9:.1f} GB free", remedy, is_short)


def _extras(facts: Facts) -> Iterator[Finding]:
    for extra, name in EXTRAS.items():
        if name in facts.versions:
            yield Finding(f"extra {extra}", f"installed ({name} {facts.versions[name]})")
        else:
            yield Finding(f"extra {extra}", "not installed", f"if wanted: `pip install 'pilotfish[{extra}]'`")


def _release(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)

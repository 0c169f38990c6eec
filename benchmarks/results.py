"""Results of a run in a file: what was measured, when, and on what machine, without its name or paths.

One file holds the results of one machine and one set of packages. Measuring a part again replaces that part only.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.timing import Claim, Clock, Figure

PACKAGES = ("mixtune", "numpy", "scipy", "scikit-learn", "pot", "pyarrow", "dask", "torch", "skada", "adapt")


@dataclass(frozen=True)
class Part:
    """What one benchmark gave: the date, how long it took in all, its claims and figures."""

    date: str
    seconds: float
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Results:
    """A file of results."""

    machine: dict[str, Any]
    parts: dict[str, Part]

    def figures(self, kind: str) -> list[Figure]:
        """All figures of a kind."""
        return [figure for part in self.parts.values() for figure in part.figures if figure.kind == kind]


def read(path: Path) -> Results:
    """The results in a file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    parts = {
        name: Part(
            part["date"],
            part["seconds"],
            tuple(Claim(**claim) for claim in part["claims"]),
            tuple(Figure(**figure) for figure in part["figures"]),
        )
        for name, part in document["parts"].items()
    }
    return Results(document["machine"], parts)


def keep(path: Path, name: str, found: Sequence[Claim | Figure], seconds: float) -> None:
    """Put what one benchmark gave into a file, in place of what it gave before."""
    kept = read(path) if path.exists() else Results(machine(), {})
    check_machine(path)
    part = Part(
        datetime.datetime.now(datetime.UTC).date().isoformat(),
        round(seconds, 1),
        tuple(one for one in found if isinstance(one, Claim)),
        tuple(one for one in found if isinstance(one, Figure)),
    )
    parts = dict(sorted({**kept.parts, name: part}.items()))
    document = asdict(Results(kept.machine, parts))
    path.write_text(json.dumps(_rounded(document), indent=1) + "\n", encoding="utf-8")


def check_machine(path: Path) -> None:
    """Refuse to mix the results of two machines, or of two sets of packages, in one file."""
    if not path.exists():
        return
    there, here = read(path).machine, machine()
    other = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if other:
        raise SystemExit(f"{path.name} holds results with another {', '.join(other)}; give --out a new file")


@cache
def machine() -> dict[str, Any]:
    """The machine and the packages, in words and numbers; the same at the start of a run as at its end."""
    import scipy.linalg  # noqa: F401 - threadpoolctl sees only what is loaded
    import threadpoolctl

    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    blas = sorted({f"{p['internal_api']} {p['version']} ({p['num_threads']} threads)" for p in pools})
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "accelerator": _accelerator(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": ", ".join(blas),
        "python": platform.python_version(),
        "packages": _versions(),
        **({} if Clock.words is None else {"clock": Clock.words}),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _accelerator() -> str | None:
    if (tool := shutil.which("nvidia-smi")) is None:
        return None
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stdout.splitlines()[0].strip() if said.returncode == 0 and said.stdout else None


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _rounded(value: Any) -> Any:
    """Six digits are more than any of these measurements has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value

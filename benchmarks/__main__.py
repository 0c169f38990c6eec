"""Run every claim: python -m benchmarks [name ...]"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in ("__main__", "timing")]
chosen = sys.argv[1:] or names
unknown = set(chosen) - set(names)
if unknown:
    sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
missed = 0
for name in chosen:
    for claim in importlib.import_module(f"benchmarks.{name}").measure():
        print(claim, flush=True)
        missed += not claim.holds
sys.exit(1 if missed else 0)

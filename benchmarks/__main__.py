"""Run claims: python -m benchmarks [name ...] [--full] [--cpu] [--out FILE]; python -m benchmarks transfer --help

Each benchmark is a module with `measure()`, which yields claims (a ratio with a limit) and figures (numbers for the
cost models of the pages). One line is printed for each; the exit status is 1 where a claim is missed. `transfer`,
`prices` and `ablation` are commands of their own (see their --help): they compare methods on real data and prices with
references, and say what the constants of the choice are worth.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
import time
from pathlib import Path

import benchmarks
from benchmarks.results import check_machine, keep, machine
from benchmarks.timing import Claim, Clock

HELPERS = ("__main__", "timing", "results", "transfer", "ablation", "prices")


def names() -> list[str]:
    """The benchmarks there are."""
    return [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in HELPERS]


def run(name: str, *, full: bool) -> list:
    """Measure one benchmark and print its lines."""
    measure = importlib.import_module(f"benchmarks.{name}").measure
    options = {"full": True} if full and "full" in inspect.signature(measure).parameters else {}
    found = []
    for one in measure(**options):
        print(one, flush=True)
        found.append(one)
    if not found:
        print(f"skipped {name}: what it needs is not here", flush=True)
    return found


def main() -> int:
    if sys.argv[1:2] == ["transfer"]:
        from benchmarks.transfer.command import main as transfer

        transfer(sys.argv[2:])
    if sys.argv[1:2] == ["ablation"]:
        from benchmarks.ablation import main as ablation

        return ablation(sys.argv[2:])
    if sys.argv[1:2] == ["prices"]:
        from benchmarks.prices import main as prices

        prices(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"of {', '.join(names())}; all by default")
    parser.add_argument("--full", action="store_true", help="also the sizes that take many minutes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the results in this file, as JSON")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of one thread, on a machine that others use")
    given = parser.parse_args()
    if given.cpu:
        Clock.use_cpu()
    if unknown := set(given.name) - set(names()):
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(names())}")
    if given.out is not None:  # before hours of work, and before a benchmark loads further libraries
        machine()
        check_machine(given.out)
    missed = 0
    for name in given.name or names():
        begin = time.perf_counter()
        found = run(name, full=given.full)
        if found and given.out is not None:
            keep(given.out, name, found, time.perf_counter() - begin)
        missed += sum(isinstance(one, Claim) and not one.holds for one in found)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())

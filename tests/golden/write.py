"""Store the golden results anew: ``python -m golden.write``, in the folder above this one.

Without ``--force`` nothing that is stored is changed: the command prints what would change (case,
field, largest difference), and ends with exit code 1 if anything would. New cases are added in
either case. Results change only where a change of behaviour is meant, and the changelog says so.

Files of saved models are never written again, since they are there to show that older files are
still read; ``--force-saved`` does it all the same. What needs a package that is not installed stays
as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from golden import cases, commands, models, recorded

FOLDER = Path(__file__).parent
#: Names of the files of stored results.
CASES, COMMANDS, SAVED = "results", "commands", "models"


def command_name(session: str, command: str) -> str:
    return f"{session}, {command}"


def found_cases() -> Iterator[tuple[str, recorded.Fields]]:
    for name, case in cases.CASES.items():
        if case.missing:
            print(f"{name}: left as it is, since {', '.join(case.missing)} is missing")
        else:
            yield name, case.fields()


def found_commands() -> Iterator[tuple[str, recorded.Fields]]:
    for name, session in commands.SESSIONS.items():
        if session.missing:
            print(f"{name}: left as it is, since {', '.join(session.missing)} is missing")
            continue
        for command, fields in commands.results(name).items():
            yield command_name(name, command), fields


def found_models() -> Iterator[tuple[str, recorded.Fields]]:
    for name, model in models.MODELS.items():
        if not model.missing:
            yield name, models.fields(name)
    if not cases.lacking(models.STUDY_NEEDS):
        for name in models.STUDIES:
            yield name, models.fields(name)


def save_models(*, force: bool) -> None:
    models.SAVED.mkdir(exist_ok=True)
    for name, model in models.MODELS.items():
        path = models.SAVED / f"{name}.mixtune"
        if not model.missing and (force or not path.exists()):
            model.save(path)
            print(f"wrote {path.name}")
    if not cases.lacking(models.STUDY_NEEDS) and (force or not models.STUDY.exists()):
        models.save_studies(models.STUDY)
        print("wrote the studies")


def names_of(kind: str) -> set[str]:
    if kind == CASES:
        return set(cases.CASES)
    if kind == COMMANDS:
        return {command_name(*pair) for pair in commands.names()}
    return {*models.MODELS, *models.STUDIES}


def tolerance_of(kind: str, name: str) -> float:
    return cases.CASES[name].tolerance if kind == CASES else recorded.TOLERANCE


def store(kind: str, *, force: bool) -> bool:
    """Compare with what is stored, write what may be written, and say whether anything differs."""
    producers = {CASES: found_cases, COMMANDS: found_commands, SAVED: found_models}
    stored = recorded.read(FOLDER, kind)
    found = dict(producers[kind]())
    changed = False
    for name, fields in found.items():
        if name not in stored:
            continue
        for line in recorded.differences(fields, stored[name], tolerance_of(kind, name)):
            changed = True
            print(f"{kind}: {name}: {line}")
    gone = set(stored) - names_of(kind)
    for name in sorted(gone):
        changed = True
        print(f"{kind}: {name}: no such case any more")
    added = [name for name in found if name not in stored]
    if force:
        kept = {name: fields for name, fields in stored.items() if name not in gone}
        recorded.write(FOLDER, kind, {**kept, **found})
    elif added:
        recorded.write(FOLDER, kind, {**stored, **{name: found[name] for name in added}})
    print(f"{kind}: {len(found)} compared, {len(added)} added")
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=f"{CASES}, {COMMANDS} or {SAVED}; by default all")
    parser.add_argument("--force", action="store_true", help="replace stored results that differ")
    parser.add_argument("--force-saved", action="store_true", help="also write the saved models anew")
    given = parser.parse_args(arguments)
    kinds = given.kinds or [CASES, COMMANDS, SAVED]
    if SAVED in kinds:
        save_models(force=given.force_saved)
    changed = [store(kind, force=given.force) for kind in kinds]
    if any(changed) and not given.force:
        print("Nothing that was stored has been changed; --force replaces it.")
    return int(any(changed) and not given.force)


if __name__ == "__main__":
    sys.exit(main())

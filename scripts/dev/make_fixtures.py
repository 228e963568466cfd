#!/usr/bin/env python3
"""Writes fixtures/: small synthetic cubes in every input format, with independent Python libraries.

Each module of scripts/dev/fixture_writers has `write(folder)`, which writes files below it and
returns their contents; all of these are written to fixtures/TRUTH.json. The files are committed, so
run this only after changing a fixture. The output is deterministic.

usage: scripts/dev/make_fixtures.py            (needs the packages of scripts/requirements/test.txt)
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS))


def main() -> None:
    import fixture_writers

    folder = SCRIPTS.parents[1] / "fixtures"
    truth: dict[str, object] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(fixture_writers.__path__)):
        if module == "synthetic":
            continue
        entries = importlib.import_module(f"fixture_writers.{module}").write(folder)
        print(f"{module}: {len(entries)} cubes")
        truth.update(entries)
    text = json.dumps(truth, indent=1, sort_keys=True)
    (folder / "TRUTH.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

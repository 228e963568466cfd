"""The command ``hsipack``: the program beside this file.

A package of its own, since importing ``hsipack`` imports NumPy, for which the command need not
wait.

The program measures on GPUs (``hsipack bench`` and ``hsipack diagnose`` with ``--device cuda``)
through torch, in the Python that ``HSIPACK_PYTHON`` names: this one, unless the variable is set.
"""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("hsipack")


def main() -> None:
    """Becomes the program; does not return."""
    if sys.executable:
        os.environ.setdefault("HSIPACK_PYTHON", sys.executable)
    try:
        os.execv(PROGRAM, ["hsipack", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"hsipack: cannot run {PROGRAM}: {error.strerror}; install hsipack again")

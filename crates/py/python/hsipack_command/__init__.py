"""The command ``hsipack``: the program beside this file.

A package of its own, since importing ``hsipack`` imports NumPy, for which the command need not
wait.
"""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("hsipack")


def main() -> None:
    """Becomes the program; does not return."""
    try:
        os.execv(PROGRAM, ["hsipack", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"hsipack: cannot run {PROGRAM}: {error.strerror}; install hsipack again")

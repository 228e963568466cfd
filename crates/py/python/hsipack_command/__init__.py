"""The command ``hsipack``: the program beside this file, run with this environment's libtorch.

A package of its own, since importing ``hsipack`` imports torch, which takes seconds.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = Path(__file__).with_name("hsipack")


def main() -> None:
    """Becomes the program; does not return."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        sys.exit("hsipack: torch is missing; run: pip install torch==2.11.0")
    libraries = [str(Path(torch.origin).parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
    try:
        os.execve(PROGRAM, ["hsipack", *sys.argv[1:]], environment)
    except OSError as error:
        sys.exit(f"hsipack: cannot run {PROGRAM}: {error.strerror}; install hsipack again")

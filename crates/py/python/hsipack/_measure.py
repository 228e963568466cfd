"""Measures for the command ``hsipack``, which has no GPU library: it starts
``python -m hsipack._measure VERSION``, with the Python that ``HSIPACK_PYTHON`` names.

Requests are lines of standard input, and answers are lines of standard output. The Rust module
``hsipack_measure::remote`` documents them.
"""

from __future__ import annotations

import os
import signal
import sys

from hsipack import _hsipack


def main(version: str) -> None:
    """Answers requests until there are no more.

    Args:
        version: version of the command. It must be that of this package, because requests may
            differ between versions.
    """
    if version != _hsipack.__version__:
        sys.exit(
            f"the command is hsipack {version}, but the package of {sys.executable} is hsipack "
            f"{_hsipack.__version__} (install both in one version)"
        )
    # Native code runs most of the time, and would not notice Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Other prints must not come between the answers, so they go to standard error.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)

        def send(line: str) -> None:
            answers.write(f"{line}\n")
            answers.flush()

        _hsipack.measure(sys.stdin.readline, send)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")

"""The torch that the native part was built with."""

TORCH = "2.11.0"
"""The version of torch that hsipack needs."""


def check_torch() -> None:
    """Loads torch, whose libraries the native part uses.

    Raises:
        ImportError: if torch is missing or of another version; what to install.
    """
    try:
        import torch
    except ImportError as error:
        what = f"hsipack needs torch {TORCH}, which cannot be imported ({error})"
        raise ImportError(f"{what}; run: pip install torch=={TORCH}") from error
    have = str(torch.__version__)
    if have.split("+")[0] != TORCH:
        what = f"hsipack needs torch {TORCH}, but torch {have} is installed"
        raise ImportError(f"{what}; run: pip install torch=={TORCH}")

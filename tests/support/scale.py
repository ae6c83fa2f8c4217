"""How often the repeating tests repeat."""

from __future__ import annotations

import os


def rounds(base: int) -> int:
    """``base``, times what the environment variable SOAK says (``make soak`` sets 10)."""
    return base * int(os.environ.get("SOAK", "1"))

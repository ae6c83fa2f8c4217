"""The all-pairs rows of the interop harness, with the whole product where the environment variable FULL is 1."""

from __future__ import annotations

import functools
import os

from interop import pairwise as _module

FULL = os.environ.get("FULL") == "1"

pairwise = functools.partial(_module.pairwise, full=FULL)

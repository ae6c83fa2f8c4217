"""Key exchange methods (RFC 4253, sections 7.2 and 8, and their successors), sans-IO."""

from .base import KexContext, KexResult, KeyExchange, derive
from .registry import CLIENT_DEFAULTS, KEX_NAMES, SERVER_DEFAULTS, kex_names, make_kex

__all__ = (
    "CLIENT_DEFAULTS",
    "KEX_NAMES",
    "SERVER_DEFAULTS",
    "KexContext",
    "KexResult",
    "KeyExchange",
    "derive",
    "kex_names",
    "make_kex",
)

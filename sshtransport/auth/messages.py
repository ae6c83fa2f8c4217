"""The messages that both login machines share (RFC 4252, RFC 4256)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..constants import MSG_USERAUTH_REQUEST, SERVICE_CONNECTION
from ..errors import LocalError
from ..wire import byte, string

__all__ = ("KEYBOARD_INTERACTIVE", "METHODS", "NONE", "PASSWORD", "PUBLICKEY", "encoded", "request_head", "signed_data")

NONE: Final = "none"
PUBLICKEY: Final = "publickey"
KEYBOARD_INTERACTIVE: Final = "keyboard-interactive"
PASSWORD: Final = "password"

#: What a server can list, in the order it is listed in; "none" never is (RFC 4252, section 5.2).
METHODS: Final = (PUBLICKEY, KEYBOARD_INTERACTIVE, PASSWORD)


def encoded(value: str, what: str) -> bytes:
    """UTF-8 of a caller's text, or LocalError naming ``what`` it is.

    The codec's own exception holds the text, so it is not even kept as a context.
    """
    with suppress(UnicodeEncodeError):
        return value.encode("utf-8", "surrogateescape")
    raise LocalError(f"{what} cannot be written as UTF-8")


def request_head(username: bytes, method: str) -> bytes:
    """The fields that every USERAUTH_REQUEST begins with (RFC 4252, section 5)."""
    return byte(MSG_USERAUTH_REQUEST) + string(username) + string(SERVICE_CONNECTION) + string(method.encode("ascii"))


def signed_data(session_id: bytes, request: bytes) -> bytes:
    """What a publickey signature covers (RFC 4252, section 7).

    ``request`` is the whole signed request up to its signature field, as it is on the wire.
    """
    return string(session_id) + request

"""The exception tree and the disconnect reason codes (RFC 4253, section 11.1).

::

    SSHError
    ├── LocalError                 the caller's mistake; raised at once, nothing changed
    │   └── KeyFileError           a key, known_hosts or authorized_keys text that cannot be used
    ├── RemoteError                the peer's fault; ends the connection
    │   ├── ProtocolError          a message that is malformed or not allowed now
    │   ├── IntegrityError         a packet whose tag or MAC does not verify
    │   ├── NegotiationError       no common algorithm, or strict KEX required and not offered
    │   ├── SignatureError         a signature that does not verify
    │   ├── HostKeyError           a host key that is unknown, changed, revoked or wrongly signed
    │   └── PeerDisconnected       the peer sent DISCONNECT
    ├── ConnectionLost             the byte stream ended (also a ConnectionError)
    ├── HandshakeTimeout           a deadline passed (also a TimeoutError)
    ├── AuthenticationFailed       every login method was refused
    ├── ChannelOpenError           the peer refused a channel
    └── ProcessError               a remote command failed or exceeded a limit

Any other exception that leaves this package for a peer's input is a bug.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

__all__ = (
    "AuthenticationFailed",
    "ChannelOpenError",
    "ConnectionLost",
    "DisconnectReason",
    "HandshakeTimeout",
    "HostKeyError",
    "IntegrityError",
    "KeyFileError",
    "LocalError",
    "NegotiationError",
    "OpenFailureReason",
    "PeerDisconnected",
    "ProcessError",
    "ProtocolError",
    "RemoteError",
    "SSHError",
    "SignatureError",
)


class DisconnectReason(IntEnum):
    """Reason codes of SSH_MSG_DISCONNECT (RFC 4253, section 11.1)."""

    HOST_NOT_ALLOWED_TO_CONNECT = 1
    PROTOCOL_ERROR = 2
    KEY_EXCHANGE_FAILED = 3
    RESERVED = 4
    MAC_ERROR = 5
    COMPRESSION_ERROR = 6
    SERVICE_NOT_AVAILABLE = 7
    PROTOCOL_VERSION_NOT_SUPPORTED = 8
    HOST_KEY_NOT_VERIFIABLE = 9
    CONNECTION_LOST = 10
    BY_APPLICATION = 11
    TOO_MANY_CONNECTIONS = 12
    AUTH_CANCELLED_BY_USER = 13
    NO_MORE_AUTH_METHODS_AVAILABLE = 14
    ILLEGAL_USER_NAME = 15


class OpenFailureReason(IntEnum):
    """Reason codes of SSH_MSG_CHANNEL_OPEN_FAILURE (RFC 4254, section 5.1)."""

    ADMINISTRATIVELY_PROHIBITED = 1
    CONNECT_FAILED = 2
    UNKNOWN_CHANNEL_TYPE = 3
    RESOURCE_SHORTAGE = 4


class SSHError(Exception):
    """Base of every exception of this package.

    ``phase`` names what the connection was doing ("identification", "key exchange",
    "authentication", ...), or is None where that says nothing.
    """

    def __init__(self, message: str = "", *, phase: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.phase = phase

    def renewed(self) -> SSHError:
        """A fresh exception with the same type, text and fields.

        Each waiter of a connection that ends gets its own, raised ``from`` the first one, so that
        tracebacks do not grow together.
        """
        copy = self.__class__.__new__(self.__class__)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        return copy


class LocalError(SSHError):
    """The caller asked for something that cannot be done; nothing has changed."""


class KeyFileError(LocalError):
    """A key or a trust file cannot be read.

    ``path`` is the file where known, ``line`` the 1-based line, ``passphrase_needed`` True when
    the key is encrypted and the passphrase was absent or wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        passphrase_needed: bool = False,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.line = line
        self.passphrase_needed = passphrase_needed


class RemoteError(SSHError):
    """The peer broke a rule. ``reason`` is the code our DISCONNECT carries.

    ``limit`` is the bound that was passed (a number of bytes, items or seconds), or None.
    """

    reason: DisconnectReason = DisconnectReason.PROTOCOL_ERROR

    def __init__(
        self,
        message: str = "",
        *,
        reason: DisconnectReason | None = None,
        phase: str | None = None,
        limit: float | None = None,
    ) -> None:
        super().__init__(message, phase=phase)
        if reason is not None:
            self.reason = reason
        self.limit = limit


class ProtocolError(RemoteError):
    """A message that is malformed, too large, or not allowed in this phase."""


class IntegrityError(RemoteError):
    """A packet's tag or MAC does not verify; nothing of the packet was used."""

    reason = DisconnectReason.MAC_ERROR


class NegotiationError(RemoteError):
    """No algorithm in common, or a required extension is missing.

    ``category`` names the list ("kex", "server host key", "cipher client to server", ...);
    ``ours`` and ``theirs`` are the two offers.
    """

    reason = DisconnectReason.KEY_EXCHANGE_FAILED

    def __init__(
        self,
        message: str,
        *,
        category: str,
        ours: Sequence[str] = (),
        theirs: Sequence[str] = (),
        phase: str | None = "key exchange",
    ) -> None:
        super().__init__(message, phase=phase)
        self.category = category
        self.ours = tuple(ours)
        self.theirs = tuple(theirs)


class SignatureError(RemoteError):
    """A public-key signature is malformed, of another algorithm than agreed, or wrong."""

    reason = DisconnectReason.KEY_EXCHANGE_FAILED


class HostKeyError(RemoteError):
    """The server's host key is not trusted, or did not sign this key exchange.

    ``verdict`` is "unknown", "changed", "revoked", "refused" or "signature"; ``path`` and
    ``line`` name the known_hosts line that decided, where there is one; ``fingerprint`` is the
    offered key's SHA-256 fingerprint.
    """

    reason = DisconnectReason.HOST_KEY_NOT_VERIFIABLE

    def __init__(
        self,
        message: str,
        *,
        verdict: str,
        host: str | None = None,
        port: int | None = None,
        path: str | None = None,
        line: int | None = None,
        fingerprint: str | None = None,
        reason: DisconnectReason | None = None,
    ) -> None:
        super().__init__(message, reason=reason, phase="key exchange")
        self.verdict = verdict
        self.host = host
        self.port = port
        self.path = path
        self.line = line
        self.fingerprint = fingerprint


class PeerDisconnected(RemoteError):
    """The peer sent SSH_MSG_DISCONNECT; ``code`` and ``description`` are what it said.

    ``description`` is the peer's text with control characters escaped.
    """

    def __init__(self, code: int, description: str, *, phase: str | None = None) -> None:
        known = {int(r): r for r in DisconnectReason}
        super().__init__(
            f"peer disconnected (reason {code}): {description}",
            reason=known.get(code, DisconnectReason.PROTOCOL_ERROR),
            phase=phase,
        )
        self.code = code
        self.description = description


class ConnectionLost(SSHError, ConnectionError):
    """The byte stream ended, or the connection was closed, before the work was done."""


class HandshakeTimeout(SSHError, TimeoutError):
    """A deadline passed; ``phase`` says during what, ``limit`` is the deadline in seconds."""

    def __init__(self, message: str, *, phase: str | None = None, limit: float | None = None) -> None:
        super().__init__(message, phase=phase)
        self.limit = limit


class AuthenticationFailed(SSHError):
    """The server refused every method we could try.

    ``tried`` lists what was tried in order, ``remaining`` the methods the server would still
    take, ``partial_success`` whether some method was accepted on the way.
    """

    def __init__(
        self,
        message: str,
        *,
        tried: Sequence[str] = (),
        remaining: Sequence[str] = (),
        partial_success: bool = False,
    ) -> None:
        super().__init__(message, phase="authentication")
        self.tried = tuple(tried)
        self.remaining = tuple(remaining)
        self.partial_success = partial_success


class ChannelOpenError(SSHError):
    """The peer refused to open a channel; ``reason`` is its code, ``description`` its text."""

    def __init__(self, reason: int, description: str) -> None:
        super().__init__(f"channel open refused (reason {reason}): {description}", phase="connection")
        self.reason = reason
        self.description = description


class ProcessError(SSHError):
    """A remote command ended with a non-zero status or a signal, or passed a limit.

    Fields are those of the completed process: ``command``, ``stdout``, ``stderr``,
    ``exit_status``, ``exit_signal``, ``returncode``; ``limit`` is the output bound that was
    passed, in bytes, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        result: Any = None,
        limit: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, phase="connection")
        self.result = result
        self.limit = limit
        for name in ("command", "stdout", "stderr", "exit_status", "exit_signal", "returncode"):
            setattr(self, name, getattr(result, name, None))
        if fields:
            self.__dict__.update(fields)

    command: str | bytes | None
    stdout: Any
    stderr: Any
    exit_status: int | None
    exit_signal: Any
    returncode: int | None

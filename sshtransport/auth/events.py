"""What the login machines tell their user (RFC 4252, RFC 4256).

Secrets are left out of every ``repr``; text of the peer that is meant to be shown has its
control characters escaped, except line feed and tab (RFC 4252, section 5.4; RFC 4256, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import Event
from ..keys import PublicKey

__all__ = (
    "AnswersReceived",
    "AuthEvent",
    "AuthRefused",
    "AuthSucceeded",
    "BannerReceived",
    "KeyAccepted",
    "KeyPresented",
    "KeyQueried",
    "KeyboardInteractiveAborted",
    "KeyboardInteractiveRequested",
    "NoneRequested",
    "PasswordChangeRequested",
    "PasswordPresented",
    "PromptsReceived",
    "ServiceAccepted",
)


@dataclass(slots=True)
class AuthEvent(Event):
    """Base of the events of both login machines."""


# --- client ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class ServiceAccepted(AuthEvent):
    """The server is ready to hear login requests (RFC 4253, section 10)."""


@dataclass(slots=True)
class KeyAccepted(AuthEvent):
    """The server would take a signature by the key that was asked about (RFC 4252, section 7)."""

    algorithm: str
    blob: bytes


@dataclass(slots=True)
class AuthRefused(AuthEvent):
    """The last request did not end the login (RFC 4252, section 5.1).

    ``methods`` is what the server would still take. With ``partial_success`` the last request
    was right and more is needed; without it, it was wrong.
    """

    methods: tuple[str, ...]
    partial_success: bool


@dataclass(slots=True)
class AuthSucceeded(AuthEvent):
    """The server let us in. Nothing follows from this machine."""


@dataclass(slots=True)
class BannerReceived(AuthEvent):
    """Text of the server to show before the login (RFC 4252, section 5.4).

    ``escaped`` is safe to print; ``text`` is what the server sent and may hold terminal commands.
    """

    text: str = field(repr=False)
    escaped: str


@dataclass(slots=True)
class PasswordChangeRequested(AuthEvent):
    """The password is right but expired; the server asks for a new one (RFC 4252, section 8)."""

    prompt: str


@dataclass(slots=True)
class PromptsReceived(AuthEvent):
    """Questions of the server, each with whether the answer may be seen (RFC 4256, section 3.2).

    There may be none: an empty list of answers is due all the same.
    """

    name: str
    instructions: str
    prompts: tuple[tuple[str, bool], ...]


# --- server ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class NoneRequested(AuthEvent):
    """Login without any proof was asked for (RFC 4252, section 5.2)."""

    username: str


@dataclass(slots=True)
class KeyQueried(AuthEvent):
    """Would this key be taken? Nothing is proven yet (RFC 4252, section 7)."""

    username: str
    key: PublicKey
    algorithm: str


@dataclass(slots=True)
class KeyPresented(AuthEvent):
    """The client proved that it holds this key: the signature has been verified."""

    username: str
    key: PublicKey
    algorithm: str


@dataclass(slots=True)
class PasswordPresented(AuthEvent):
    """A password to check (RFC 4252, section 8)."""

    username: str
    password: str = field(repr=False)


@dataclass(slots=True)
class KeyboardInteractiveRequested(AuthEvent):
    """The client is ready for questions (RFC 4256, section 3.1); ``submethods`` are its hints."""

    username: str
    submethods: tuple[str, ...]


@dataclass(slots=True)
class AnswersReceived(AuthEvent):
    """The answers to the last questions, as many as there were questions (RFC 4256, section 3.4)."""

    answers: tuple[str, ...] = field(repr=False)


@dataclass(slots=True)
class KeyboardInteractiveAborted(AuthEvent):
    """The client left the questions unanswered and asks for something else.

    No verdict is due: whoever waits for the answers must stop. The new request follows from
    ``next_event()``.
    """

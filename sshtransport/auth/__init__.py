"""Login: the machines of RFC 4252 and RFC 4256 for both sides, and ready-made authenticators."""

from .authenticators import PARTIAL_SUCCESS, AuthInfo, AuthorizedKeys, Grant, PartialSuccess, Passwords, verdict_of
from .client import ClientAuth, choose_algorithms
from .events import (
    AnswersReceived,
    AuthEvent,
    AuthRefused,
    AuthSucceeded,
    BannerReceived,
    KeyAccepted,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    NoneRequested,
    PasswordChangeRequested,
    PasswordPresented,
    PromptsReceived,
    ServiceAccepted,
)
from .server import ServerAuth

__all__ = (
    "PARTIAL_SUCCESS",
    "AnswersReceived",
    "AuthEvent",
    "AuthInfo",
    "AuthRefused",
    "AuthSucceeded",
    "AuthorizedKeys",
    "BannerReceived",
    "ClientAuth",
    "Grant",
    "KeyAccepted",
    "KeyPresented",
    "KeyQueried",
    "KeyboardInteractiveAborted",
    "KeyboardInteractiveRequested",
    "NoneRequested",
    "PasswordChangeRequested",
    "PartialSuccess",
    "PasswordPresented",
    "Passwords",
    "PromptsReceived",
    "ServerAuth",
    "ServiceAccepted",
    "choose_algorithms",
    "verdict_of",
)

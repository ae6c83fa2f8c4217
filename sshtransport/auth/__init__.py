"""Login: the machines of RFC 4252 and RFC 4256 for both sides, and ready-made authenticators."""

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
    "AnswersReceived",
    "AuthEvent",
    "AuthRefused",
    "AuthSucceeded",
    "BannerReceived",
    "ClientAuth",
    "KeyAccepted",
    "KeyPresented",
    "KeyQueried",
    "KeyboardInteractiveAborted",
    "KeyboardInteractiveRequested",
    "NoneRequested",
    "PasswordChangeRequested",
    "PasswordPresented",
    "PromptsReceived",
    "ServerAuth",
    "ServiceAccepted",
    "choose_algorithms",
)

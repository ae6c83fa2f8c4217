"""Is this the right server? known_hosts first, then the application's verifier (RFC 4251, section 4.1)."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from enum import Enum
from typing import Any, Final

from ..errors import HostKeyError, LocalError, ProtocolError
from ..keys import HostKeyEntry, HostKeyLookup, KnownHosts, PublicKey

__all__ = (
    "INSECURE_ACCEPT_ANY_HOST_KEY",
    "HostKeyVerifier",
    "HostTrust",
    "KnownHostsSource",
    "PendingVerdict",
    "accept_new",
    "checked",
)


class _Insecure(Enum):
    ACCEPT_ANY_HOST_KEY = "accept any host key"


#: ``known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY`` trusts whoever answers: anybody in between can read and change all.
INSECURE_ACCEPT_ANY_HOST_KEY: Final = _Insecure.ACCEPT_ANY_HOST_KEY

KnownHostsSource = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | KnownHosts | _Insecure | None
HostKeyVerifier = Callable[[str, int, PublicKey], "bool | Awaitable[bool]"]


def accept_new(host: str, port: int, key: PublicKey) -> bool:
    """A verifier: trust a host that is not in known_hosts, and write it there for the next time.

    A host that is known with any other key is refused all the same. The first connection could be
    to an impostor; later ones to another are noticed.
    """
    return True


class PendingVerdict:
    """Awaits a verifier's answer; raises the refusal unless that is True."""

    def __init__(self, answer: Awaitable[object], refusal: HostKeyError) -> None:
        self._answer = answer
        self._refusal = refusal

    def __await__(self) -> Generator[Any, Any, None]:
        if (yield from self._answer.__await__()) is not True:
            raise self._refusal

    def close(self) -> None:
        """Nobody waits any more: a coroutine that was not even started must not complain of that."""
        if inspect.iscoroutine(self._answer):
            self._answer.close()


class HostTrust:
    """Decides about the host keys of one connection, the first and those of rekeys alike."""

    def __init__(
        self,
        known_hosts: KnownHostsSource,
        verifier: HostKeyVerifier | None,
        host: str,
        port: int,
        alias: str | None,
        rsa_min_bits: int,
    ) -> None:
        self._host, self._port = host, port
        self._name = (alias, 22) if alias is not None else (host, port)
        self._verifier = verifier
        self._rsa_min_bits = rsa_min_bits
        self._any = known_hosts is INSECURE_ACCEPT_ANY_HOST_KEY
        self._known: KnownHosts | None = None
        self._lookup = HostKeyLookup()
        if isinstance(known_hosts, KnownHosts):
            self._known = known_hosts
        elif not isinstance(known_hosts, _Insecure):
            self._known = KnownHosts.load(known_hosts, missing_ok=verifier is accept_new)
        if self._known is not None:
            self._lookup = self._known.lookup(*self._name)

    def preferred(self, algorithms: Sequence[str]) -> tuple[str, ...]:
        """Host key algorithms with those first that could be verified."""
        return self._lookup.preferred(algorithms)

    def check(self, blob: bytes) -> PendingVerdict | None:
        """None when the key is to be trusted; to be awaited when the application's verifier takes its time.

        Raises, here or when awaited:
            HostKeyError: it is not; ``verdict``, ``path`` and ``line`` say why.
        """
        key = PublicKey.from_blob(blob, rsa_min_bits=self._rsa_min_bits)
        if self._any:
            return None
        outcome, entry = self._lookup.verdict(key)
        if outcome == "trusted":
            return None
        if outcome == "unknown" and self._verifier is not None:
            answer = self._ask(key)
            if answer is True:
                return None
            if inspect.isawaitable(answer):
                return PendingVerdict(answer, self._refusal(key, "refused", None))
            raise self._refusal(key, "refused", entry)
        raise self._refusal(key, outcome, entry)

    def _ask(self, key: PublicKey) -> object:
        """The application's word; anything but True itself refuses (known bugs, M 162)."""
        assert self._verifier is not None
        if self._verifier is not accept_new:
            return self._verifier(self._host, self._port, key)
        if self._lookup.trusted or self._known is None:
            return False
        self._known.add(*self._name, key)
        return True

    def _refusal(self, key: PublicKey, verdict: str, entry: HostKeyEntry | None) -> HostKeyError:
        path = entry.path if entry is not None else None
        line = entry.line if entry is not None else None
        host = self._host if self._port == 22 else f"[{self._host}]:{self._port}"
        offered = f"{key.algorithm} {key.fingerprint()}"
        where = f"; see {path or 'known hosts'}, line {line}" if line is not None else ""
        if verdict == "unknown" and line is None and self._known is not None and self._known.paths:
            where = f"; looked in {', '.join(self._known.paths)}"
        return HostKeyError(
            f"the host key of {host} {_VERDICTS[verdict]}: offered is {offered}{where}",
            verdict=verdict,
            host=self._host,
            port=self._port,
            path=path,
            line=line,
            fingerprint=key.fingerprint(),
        )


_VERDICTS: Final = {
    "unknown": "is not known",
    "changed": "has CHANGED",
    "revoked": "is REVOKED",
    "refused": "was refused by the verifier",
}


def checked(error: BaseException) -> HostKeyError:
    """What a fault during the check means for the peer's key: it is not trusted."""
    if isinstance(error, HostKeyError):
        return error
    if isinstance(error, LocalError | ProtocolError):
        return HostKeyError(f"the host key cannot be used: {error.message}", verdict="refused")
    return HostKeyError(f"the host key check failed: {type(error).__name__}", verdict="refused")

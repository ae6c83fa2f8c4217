"""The server's side of the login (RFC 4252, RFC 4256), without I/O.

The machine parses, checks signatures, counts attempts and answers; who may come in is judged by
its user. It never learns whether a user exists, so it cannot answer differently because of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from ..constants import (
    AUTH_PROMPTS_MAX,
    AUTH_QUEUED_BYTES_MAX,
    AUTH_QUEUED_MAX,
    AUTH_REQUESTS_MAX,
    AUTH_SECRET_MAX,
    AUTH_SUBMETHODS_MAX,
    MSG_SERVICE_ACCEPT,
    MSG_SERVICE_REQUEST,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_INFO_REQUEST,
    MSG_USERAUTH_INFO_RESPONSE,
    MSG_USERAUTH_PK_OK,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    RSA_BITS_MIN,
    SERVICE_CONNECTION,
    SERVICE_USERAUTH,
    USER_NAME_MAX,
)
from ..errors import DisconnectReason, LocalError, ProtocolError, SignatureError
from ..keys import PublicKey
from ..sink import PacketSink
from ..wire import Reader, boolean, byte, name_list, string, text, uint32, visible
from .events import (
    AnswersReceived,
    AuthEvent,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    NoneRequested,
    PasswordPresented,
)
from .messages import KEYBOARD_INTERACTIVE, METHODS, NONE, PASSWORD, PUBLICKEY, encoded, signed_data

__all__ = ("ServerAuth",)

#: The method that an event's acceptance completes.
_METHOD_OF: dict[type[AuthEvent], str] = {
    NoneRequested: NONE,
    KeyPresented: PUBLICKEY,
    PasswordPresented: PASSWORD,
    KeyboardInteractiveRequested: KEYBOARD_INTERACTIVE,
    AnswersReceived: KEYBOARD_INTERACTIVE,
}


class ServerAuth:
    """Answers one client's login requests, in the order they came.

    ``methods`` are those to list (of "publickey", "keyboard-interactive", "password"); without
    ``secure`` (both directions encrypted and authenticated, a property of the cipher objects) only
    "publickey" is. ``signature_algorithms`` are the exact names a key may sign with. At the
    ``max_tries``-th failure, and at the ``max_key_queries``-th refused key query, the connection
    ends; the first "none" and queries answered with yes are free.

    :meth:`receive` and :meth:`next_event` return a request to judge, or None. Each is judged by
    exactly one of :meth:`accept`, :meth:`refuse`, :meth:`partial`, :meth:`key_ok`, :meth:`ask`;
    then :meth:`next_event` is to be called until it returns None, for what waited meanwhile.
    ProtocolError, from any of them, ends the connection.
    """

    __slots__ = (
        "_asked",
        "_completed",
        "_done",
        "_identity",
        "_key_queries",
        "_max_key_queries",
        "_max_tries",
        "_methods",
        "_none_seen",
        "_pending",
        "_queue",
        "_queued_bytes",
        "_requests",
        "_rsa_min_bits",
        "_service",
        "_session_id",
        "_signature_algorithms",
        "_sink",
        "_tries",
    )

    def __init__(
        self,
        session_id: bytes,
        sink: PacketSink,
        *,
        methods: frozenset[str],
        signature_algorithms: tuple[str, ...],
        secure: bool,
        max_tries: int = 6,
        max_key_queries: int = 20,
        rsa_min_bits: int = RSA_BITS_MIN,
    ) -> None:
        if not methods.issubset(METHODS):
            raise LocalError(f"unknown login methods: {sorted(methods.difference(METHODS))}")
        if max_tries < 1 or max_key_queries < 1:
            raise LocalError("max_tries and max_key_queries are at least 1")
        usable = METHODS if secure else (PUBLICKEY,)
        self._methods = tuple(name for name in usable if name in methods)
        self._session_id = session_id
        self._sink = sink
        self._signature_algorithms = {name.encode("ascii"): name for name in signature_algorithms}
        self._max_tries = max_tries
        self._max_key_queries = max_key_queries
        self._rsa_min_bits = rsa_min_bits
        self._service = self._done = self._none_seen = False
        self._identity: tuple[bytes, bytes] | None = None  # user and service of the first request
        self._pending: AuthEvent | None = None  # what waits for a verdict
        self._asked: int | None = None  # prompts whose answers the client owes
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._completed: tuple[str, ...] = ()
        self._requests = self._tries = self._key_queries = 0

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods a client may go on with now."""
        return self._methods

    @property
    def completed(self) -> tuple[str, ...]:
        """The methods accepted as a part so far, in order."""
        return self._completed

    @property
    def authenticated(self) -> bool:
        """Whether SUCCESS was sent."""
        return self._done

    @property
    def response_expected(self) -> bool:
        """Whether an INFO_RESPONSE may come; at other times it is to be answered with UNIMPLEMENTED."""
        return self._asked is not None

    # --- messages ---------------------------------------------------------------------------------

    def receive(self, payload: bytes) -> AuthEvent | None:
        """Take a message of the client (SERVICE_REQUEST or 50 to 79).

        After SUCCESS such messages are dropped (RFC 4252, section 5.1), and so is an
        INFO_RESPONSE that nobody waits for.
        """
        number = payload[0] if payload else 0
        if self._done and (number == MSG_SERVICE_REQUEST or MSG_USERAUTH_REQUEST <= number < 80):
            return None
        if number not in self._HANDLERS:
            raise ProtocolError(f"message {number} is not for a server in login", phase="authentication")
        if number == MSG_USERAUTH_INFO_RESPONSE and self._asked is None:
            return None
        self._requests += 1
        if self._requests > AUTH_REQUESTS_MAX:
            raise _too_many(AUTH_REQUESTS_MAX)
        self._queue.append(payload)
        self._queued_bytes += len(payload)
        event = self.next_event()
        if len(self._queue) > AUTH_QUEUED_MAX:
            raise ProtocolError("too many login requests at once", limit=AUTH_QUEUED_MAX, phase="authentication")
        if self._queued_bytes > AUTH_QUEUED_BYTES_MAX:
            raise ProtocolError("too many login requests at once", limit=AUTH_QUEUED_BYTES_MAX, phase="authentication")
        return event

    def next_event(self) -> AuthEvent | None:
        """The next request to judge among those that waited, or None. To be called after each verdict."""
        while self._queue and self._pending is None:
            payload = self._queue[0]
            if self._asked is not None and payload[0] == MSG_USERAUTH_REQUEST:
                # Not answered with FAILURE (RFC 4252, section 5.1), but counted: each attempt may
                # have sent a message to somebody's telephone.
                self._asked = None
                self._count_try()
                return KeyboardInteractiveAborted()
            self._queue.popleft()
            self._queued_bytes -= len(payload)
            event = self._HANDLERS[payload[0]](self, Reader(payload, 1), payload)
            if event is not None:
                self._pending = event
                return event
        return None

    def _on_service_request(self, reader: Reader, payload: bytes) -> None:
        """Answered each time it comes: some clients ask before every attempt (known bugs, I 117)."""
        service = reader.string()
        reader.end()
        if service != SERVICE_USERAUTH:
            raise ProtocolError(
                f"service {visible(service, 64)} is not available",
                reason=DisconnectReason.SERVICE_NOT_AVAILABLE,
                phase="authentication",
            )
        self._service = True
        self._sink.send(byte(MSG_SERVICE_ACCEPT) + string(SERVICE_USERAUTH))

    def _on_request(self, reader: Reader, payload: bytes) -> AuthEvent | None:
        """Parse the whole request, then look at what it asks for (known bugs, I 122)."""
        if not self._service:
            raise ProtocolError("login request before SERVICE_REQUEST", phase="authentication")
        user, service = identity = reader.string(USER_NAME_MAX), reader.string()
        method = self._METHODS.get(reader.string())
        if service != SERVICE_CONNECTION:
            raise ProtocolError(
                f"service {visible(service, 64)} is not available",
                reason=DisconnectReason.SERVICE_NOT_AVAILABLE,
                phase="authentication",
            )
        if self._identity is None:
            self._identity = identity
        elif self._identity != identity:
            raise ProtocolError("user or service changed between login requests", phase="authentication")
        if method is None:
            self._fail()
            return None
        return method(self, reader, payload, user.decode("utf-8", "surrogateescape"))

    def _on_none(self, reader: Reader, payload: bytes, username: str) -> AuthEvent | None:
        reader.end()
        return NoneRequested(username)

    def _on_publickey(self, reader: Reader, payload: bytes, username: str) -> AuthEvent | None:
        flag_at = len(payload) - reader.remaining
        signed = reader.boolean()
        algorithm, blob = reader.string(), reader.string()
        signature_at = len(payload) - reader.remaining
        signature = reader.string() if signed else b""
        reader.end()
        # The same rules for a query and a signature: name, key type and (in verify) signature blob
        # agree exactly, and the exact name is on the list (known bugs, I 124).
        name = self._signature_algorithms.get(algorithm, "") if PUBLICKEY in self._methods else ""
        key = self._parse_key(blob) if name else None
        if key is None or name not in key.signature_algorithms:
            if signed:
                self._fail()
            else:
                self._fail_query()
            return None
        if not signed:
            return KeyQueried(username, key, name)
        # The bytes as received, except that TRUE is signed as 1 whatever stood for it.
        request = payload[:flag_at] + b"\x01" + payload[flag_at + 1 : signature_at]
        try:
            key.verify(name, signed_data(self._session_id, request), signature)
        except SignatureError:
            self._fail()
            return None
        return KeyPresented(username, key, name)

    def _parse_key(self, blob: bytes) -> PublicKey | None:
        try:
            return PublicKey.from_blob(blob, rsa_min_bits=self._rsa_min_bits)
        except ProtocolError:
            return None  # the client may have better keys (known bugs, I 118)

    def _on_password(self, reader: Reader, payload: bytes, username: str) -> AuthEvent | None:
        change = reader.boolean()
        password = reader.string(AUTH_SECRET_MAX)
        if change:
            reader.string(AUTH_SECRET_MAX)
        reader.end()
        # We never ask for a new password, so a change request is an answer to nothing.
        if change or PASSWORD not in self._methods:
            self._fail()
            return None
        return PasswordPresented(username, password.decode("utf-8", "surrogateescape"))

    def _on_keyboard_interactive(self, reader: Reader, payload: bytes, username: str) -> AuthEvent | None:
        reader.string(AUTH_SUBMETHODS_MAX)  # language tag
        submethods = reader.text(AUTH_SUBMETHODS_MAX)
        reader.end()
        if KEYBOARD_INTERACTIVE not in self._methods:
            self._fail()
            return None
        return KeyboardInteractiveRequested(username, tuple(name for name in submethods.split(",") if name))

    def _on_info_response(self, reader: Reader, payload: bytes) -> AuthEvent | None:
        asked, self._asked = self._asked, None
        count = reader.uint32()
        if count > reader.remaining // 4:
            raise ProtocolError("truncated message", phase="authentication")
        if count != asked:
            self._fail()  # RFC 4256, section 3.4
            return None
        answers = tuple(reader.text(AUTH_SECRET_MAX) for _ in range(count))
        reader.end()
        return AnswersReceived(answers)

    _METHODS: ClassVar[dict[bytes, Callable[[ServerAuth, Reader, bytes, str], AuthEvent | None]]] = {
        NONE.encode(): _on_none,
        PUBLICKEY.encode(): _on_publickey,
        PASSWORD.encode(): _on_password,
        KEYBOARD_INTERACTIVE.encode(): _on_keyboard_interactive,
    }

    _HANDLERS: ClassVar[dict[int, Callable[[ServerAuth, Reader, bytes], AuthEvent | None]]] = {
        MSG_SERVICE_REQUEST: _on_service_request,
        MSG_USERAUTH_REQUEST: _on_request,
        MSG_USERAUTH_INFO_RESPONSE: _on_info_response,
    }

    # --- verdicts ---------------------------------------------------------------------------------

    def accept(self) -> None:
        """Let the client in: SUCCESS. What still waited is dropped.

        LocalError for a key query, which proves nothing.
        """
        self._judged(*_METHOD_OF)
        self._done = True
        self._queue.clear()
        self._queued_bytes = 0
        self._sink.send(byte(MSG_USERAUTH_SUCCESS))

    def refuse(self) -> None:
        """Answer with FAILURE, or raise ProtocolError when that was the last attempt."""
        event = self._judged(AuthEvent)
        if isinstance(event, KeyQueried):
            self._fail_query()
        elif isinstance(event, NoneRequested) and not self._none_seen:
            self._none_seen = True
            self._send_failure()
        else:
            self._fail()

    def partial(self, remaining: Iterable[str] | None = None) -> None:
        """The request was right and more is needed (RFC 4252, section 5.1).

        ``remaining`` are the methods that may follow, of those listed so far; None takes the one
        that just succeeded off the list. LocalError for a key query.
        """
        chosen = None if remaining is None else frozenset(remaining)
        method = _METHOD_OF[type(self._judged(*_METHOD_OF))]
        self._methods = tuple(name for name in self._methods if (name != method if chosen is None else name in chosen))
        self._completed += (method,)
        self._send_failure(partial_success=True)

    def key_ok(self) -> None:
        """A signature by the queried key would be taken: PK_OK (RFC 4252, section 7)."""
        event = self._judged(KeyQueried)
        assert isinstance(event, KeyQueried)
        self._sink.send(byte(MSG_USERAUTH_PK_OK) + text(event.algorithm) + string(event.key.blob))

    def ask(self, name: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> None:
        """Ask the client these questions, each with whether its answer may be seen (RFC 4256, section 3.2).

        At most 100, none of them empty; none at all is allowed. The answers come as
        :class:`~sshtransport.auth.events.AnswersReceived`.
        """
        if len(prompts) > AUTH_PROMPTS_MAX or not all(prompt for prompt, _ in prompts):
            raise LocalError(f"at most {AUTH_PROMPTS_MAX} prompts, none of them empty")
        head = string(encoded(name, "the name")) + string(encoded(instructions, "the instructions")) + string(b"")
        body = b"".join(string(encoded(prompt, "a prompt")) + boolean(echo) for prompt, echo in prompts)
        self._judged(KeyboardInteractiveRequested, AnswersReceived)
        self._asked = len(prompts)
        # A client that went on to another request has no use for the questions: next_event() ends them.
        if not any(payload[0] == MSG_USERAUTH_REQUEST for payload in self._queue):
            self._sink.send(byte(MSG_USERAUTH_INFO_REQUEST) + head + uint32(len(prompts)) + body)

    def banner(self, message: str) -> None:
        """Show text to the user, between the service's acceptance and SUCCESS (RFC 4252, section 5.4)."""
        if not self._service or self._done:
            raise LocalError("a banner belongs between SERVICE_ACCEPT and USERAUTH_SUCCESS")
        lines = message.replace("\r\n", "\n").replace("\n", "\r\n")
        self._sink.send(byte(MSG_USERAUTH_BANNER) + string(encoded(lines, "the banner")) + string(b""))

    def _judged(self, *kinds: type[AuthEvent]) -> AuthEvent:
        event = self._pending
        if event is None:
            raise LocalError("no login request waits for a verdict")
        if not isinstance(event, kinds):
            raise LocalError(f"this verdict does not fit {type(event).__name__}")
        self._pending = None
        return event

    def _fail(self) -> None:
        self._count_try()
        self._send_failure()

    def _fail_query(self) -> None:
        self._key_queries += 1
        if self._key_queries >= self._max_key_queries:
            raise _too_many(self._max_key_queries)
        self._send_failure()

    def _count_try(self) -> None:
        self._tries += 1
        if self._tries >= self._max_tries:
            raise _too_many(self._max_tries)

    def _send_failure(self, partial_success: bool = False) -> None:
        self._sink.send(byte(MSG_USERAUTH_FAILURE) + name_list(self._methods) + boolean(partial_success))


def _too_many(limit: int) -> ProtocolError:
    """Only DISCONNECT answers the last failure: FAILURE before it confuses clients (known bugs, I 121)."""
    return ProtocolError(
        "too many authentication failures",
        reason=DisconnectReason.NO_MORE_AUTH_METHODS_AVAILABLE,
        phase="authentication",
        limit=limit,
    )

"""The client's side of the login (RFC 4252, RFC 4256), without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from ..constants import (
    AUTH_BANNER_TOTAL_MAX,
    AUTH_BANNERS_MAX,
    AUTH_PROMPTS_MAX,
    AUTH_ROUNDS_MAX,
    MSG_SERVICE_ACCEPT,
    MSG_SERVICE_REQUEST,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_INFO_RESPONSE,
    MSG_USERAUTH_PK_OK,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    SERVICE_USERAUTH,
    USER_NAME_MAX,
)
from ..errors import LocalError, ProtocolError
from ..keys import PrivateKey, PublicKey
from ..sink import PacketSink
from ..wire import Reader, boolean, byte, string, uint32, visible
from .events import (
    AuthEvent,
    AuthRefused,
    AuthSucceeded,
    BannerReceived,
    KeyAccepted,
    PasswordChangeRequested,
    PromptsReceived,
    ServiceAccepted,
)
from .messages import KEYBOARD_INTERACTIVE, NONE, PASSWORD, PUBLICKEY, encoded, request_head, signed_data

__all__ = ("ClientAuth", "choose_algorithms")

_QUERY = "publickey query"  # what is outstanding, besides the method names

#: Characters of one text that is shown to a human: beyond it the text is cut.
_SHOWN_MAX = 16_384


class _HasAlgorithms(Protocol):
    @property
    def signature_algorithms(self) -> tuple[str, ...]: ...


def choose_algorithms(key: _HasAlgorithms, server_sig_algs: Sequence[str] | None) -> tuple[str, ...]:
    """The signature algorithms worth trying with ``key`` (public or private), best first.

    ``server_sig_algs`` is the server's list (RFC 8308, section 3.1), or None when it sent none.
    A key that signs in one way only is tried in that way: OpenSSH 7.2 to 7.5 list nothing but
    the RSA names and take other keys all the same. An RSA key goes by the list: the first common
    one, or () when the server knows none of ours. Without a list both SHA-2 forms are worth a
    try, so that at most one attempt is wasted.
    """
    names = key.signature_algorithms
    if len(names) < 2 or server_sig_algs is None:
        return names[:2]
    return tuple(name for name in names if name in server_sig_algs)[:1]


def _shown(value: bytes) -> str:
    """Text of the server with everything escaped that could drive a terminal, lines kept."""
    text = value.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    return visible(text, _SHOWN_MAX, keep="\n\t")


class ClientAuth:
    """Asks a server to let a user in, one request at a time.

    ``secure`` tells whether both directions are encrypted and authenticated (a property of the
    cipher objects, never of a MAC name): without it no password leaves. ``server_sig_algs`` may
    be replaced when a later EXT_INFO brings another list. Actions raise :class:`LocalError` when
    they cannot be done now; :meth:`receive` raises :class:`ProtocolError`.
    """

    __slots__ = (
        "_accepted",
        "_banner_bytes",
        "_banners",
        "_done",
        "_outstanding",
        "_pk_ok",
        "_prompts",
        "_rounds",
        "_secure",
        "_session_id",
        "_sink",
        "_started",
        "_username",
        "server_sig_algs",
    )

    def __init__(
        self,
        username: str,
        session_id: bytes,
        sink: PacketSink,
        *,
        server_sig_algs: tuple[str, ...] | None = None,
        secure: bool,
    ) -> None:
        self._username = encoded(username, "the user name")
        if len(self._username) > USER_NAME_MAX:
            raise LocalError(f"the user name is longer than {USER_NAME_MAX} bytes")
        self._session_id = session_id
        self._sink = sink
        self._secure = secure
        self.server_sig_algs = server_sig_algs
        self._started = self._accepted = self._done = False
        self._outstanding: str | None = None  # the request whose answer has not come
        self._pk_ok = b""  # the only PK_OK the server may send
        self._prompts: int | None = None  # questions of the server that wait for answer()
        self._rounds = 0
        self._banners = self._banner_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether an answer of the server is due: no action is possible until it came."""
        return self._outstanding is not None

    @property
    def authenticated(self) -> bool:
        """Whether the server said SUCCESS."""
        return self._done

    # --- actions ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the login service: once in a connection (known bugs, I 117)."""
        if self._started:
            raise LocalError("the login has been started already")
        self._started = True
        self._sink.send(byte(MSG_SERVICE_REQUEST) + string(SERVICE_USERAUTH))

    def try_none(self) -> None:
        """Ask without any proof: the refusal lists the methods (RFC 4252, section 5.2)."""
        self._request(NONE, b"")

    def query_key(self, key: PublicKey, algorithm: str) -> None:
        """Ask whether a signature by ``key`` would be taken; :class:`KeyAccepted` says yes."""
        names = _key_fields(key, algorithm)
        self._request(PUBLICKEY, boolean(False) + names, outstanding=_QUERY)
        self._pk_ok = byte(MSG_USERAUTH_PK_OK) + names

    def try_key(self, key: PrivateKey, algorithm: str) -> None:
        """Log in with ``key``, with or without a query before."""
        self._check_idle()
        self.try_signature(key.public_key, algorithm, key.sign(algorithm, self.data_to_sign(key.public_key, algorithm)))

    def data_to_sign(self, key: PublicKey, algorithm: str) -> bytes:
        """What the holder of ``key`` (an agent, for instance) has to sign for :meth:`try_signature`."""
        return signed_data(self._session_id, self._signed_request(key, algorithm))

    def try_signature(self, key: PublicKey, algorithm: str, signature: bytes) -> None:
        """Log in with a signature blob made elsewhere.

        LocalError when it was made with another algorithm: old agents fall back to SHA-1
        silently (known bugs, F 71).
        """
        try:
            made_with = Reader(signature).string()
        except ProtocolError:
            raise LocalError("the signature is not a signature blob") from None
        if made_with != algorithm.encode("ascii"):
            raise LocalError(f"asked for a signature by {algorithm}, got one by {visible(made_with)}")
        head = request_head(self._username, PUBLICKEY)
        self._request(PUBLICKEY, self._signed_request(key, algorithm)[len(head) :] + string(signature))

    def try_password(self, password: str) -> None:
        """Log in with a password (RFC 4252, section 8). LocalError on a line that is not secure."""
        self._check_secure()
        self._request(PASSWORD, boolean(False) + string(encoded(password, "the password")))

    def change_password(self, old: str, new: str) -> None:
        """Log in with a password and replace it (RFC 4252, section 8)."""
        self._check_secure()
        passwords = string(encoded(old, "the password")) + string(encoded(new, "the new password"))
        self._request(PASSWORD, boolean(True) + passwords)

    def try_keyboard_interactive(self) -> None:
        """Let the server ask questions (RFC 4256, section 3.1)."""
        self._check_secure()
        self._request(KEYBOARD_INTERACTIVE, string(b"") + string(b""))
        self._rounds = 0

    def answer(self, answers: Sequence[str]) -> None:
        """Answer the last :class:`PromptsReceived`, one string for each prompt."""
        if self._prompts is None:
            raise LocalError("no question of the server is open")
        if isinstance(answers, str) or len(answers) != self._prompts:
            raise LocalError(f"{self._prompts} answers are due")
        body = b"".join(string(encoded(answer, "an answer")) for answer in answers)
        self._sink.send(byte(MSG_USERAUTH_INFO_RESPONSE) + uint32(len(answers)) + body)
        self._prompts = None
        self._outstanding = KEYBOARD_INTERACTIVE

    def _signed_request(self, key: PublicKey, algorithm: str) -> bytes:
        return request_head(self._username, PUBLICKEY) + boolean(True) + _key_fields(key, algorithm)

    def _request(self, method: str, body: bytes, outstanding: str | None = None) -> None:
        self._check_idle()
        self._sink.send(request_head(self._username, method) + body)
        self._outstanding = outstanding or method
        self._prompts = None  # a new request drops the questions of the one before (RFC 4252, section 5.1)

    def _check_idle(self) -> None:
        if self._done:
            raise LocalError("logged in already")
        if not self._started:
            raise LocalError("the login has not been started")
        if self._outstanding is not None:
            raise LocalError("the answer to the last login request has not come yet")

    def _check_secure(self) -> None:
        if not self._secure:
            raise LocalError("passwords are sent over an encrypted and authenticated line only")

    # --- messages ---------------------------------------------------------------------------------

    def receive(self, payload: bytes) -> AuthEvent | None:
        """Take a message of the server (SERVICE_ACCEPT or 50 to 79).

        After SUCCESS such messages are dropped. Raises ProtocolError on anything that is
        malformed or not an answer to what was asked.
        """
        number = payload[0] if payload else 0
        if self._done and MSG_USERAUTH_REQUEST <= number < 80:
            return None
        handler = self._HANDLERS.get(number)
        if handler is None or self._done:
            raise ProtocolError(f"message {number} is not for a client that logs in", phase="authentication")
        if not self._accepted and number != MSG_SERVICE_ACCEPT:
            raise ProtocolError("login message before SERVICE_ACCEPT", phase="authentication")
        return handler(self, payload)

    def _on_service_accept(self, payload: bytes) -> ServiceAccepted:
        reader = Reader(payload, 1)
        service = reader.string()
        reader.end()
        if not self._started or self._accepted or service != SERVICE_USERAUTH:
            raise ProtocolError("SERVICE_ACCEPT for something not asked for", phase="authentication")
        self._accepted = True
        return ServiceAccepted()

    def _on_failure(self, payload: bytes) -> AuthRefused:
        reader = Reader(payload, 1)
        methods = reader.name_list()
        partial_success = reader.boolean()
        reader.end()
        self._answered("USERAUTH_FAILURE")
        return AuthRefused(methods, partial_success)

    def _on_success(self, payload: bytes) -> AuthSucceeded:
        Reader(payload, 1).end()
        # To a query the only answers are PK_OK and FAILURE (RFC 4252, section 7).
        if self._answered("USERAUTH_SUCCESS") == _QUERY:
            raise ProtocolError("USERAUTH_SUCCESS in answer to a key query", phase="authentication")
        self._done = True
        return AuthSucceeded()

    def _answered(self, name: str) -> str:
        outstanding = self._outstanding
        if outstanding is None:
            raise ProtocolError(f"{name} without a request", phase="authentication")
        self._outstanding = None
        return outstanding

    def _on_banner(self, payload: bytes) -> BannerReceived:
        reader = Reader(payload, 1)
        message = reader.string()
        reader.string()  # language tag
        reader.end()
        self._banners += 1
        self._banner_bytes += len(message)
        if self._banners > AUTH_BANNERS_MAX:
            raise ProtocolError("too many login banners", limit=AUTH_BANNERS_MAX, phase="authentication")
        if self._banner_bytes > AUTH_BANNER_TOTAL_MAX:
            raise ProtocolError("login banners too long", limit=AUTH_BANNER_TOTAL_MAX, phase="authentication")
        return BannerReceived(message.decode("utf-8", "backslashreplace"), _shown(message))

    def _on_pk_ok(self, payload: bytes) -> KeyAccepted:
        if payload != self._pk_ok:
            raise ProtocolError("PK_OK for another key than the one asked about", phase="authentication")
        self._outstanding = None
        reader = Reader(payload, 1)
        return KeyAccepted(reader.ascii(), reader.string())

    def _on_passwd_changereq(self, payload: bytes) -> PasswordChangeRequested:
        reader = Reader(payload, 1)
        prompt = reader.string()
        reader.string()  # language tag
        reader.end()
        self._outstanding = None
        return PasswordChangeRequested(_shown(prompt))

    def _on_info_request(self, payload: bytes) -> PromptsReceived:
        reader = Reader(payload, 1)
        name, instructions = reader.string(), reader.string()
        reader.string()  # language tag
        count = reader.uint32()
        if count > AUTH_PROMPTS_MAX:
            raise ProtocolError("too many prompts", limit=AUTH_PROMPTS_MAX, phase="authentication")
        prompts = tuple((_shown(reader.string()), reader.boolean()) for _ in range(count))
        reader.end()
        self._rounds += 1
        if self._rounds > AUTH_ROUNDS_MAX:
            raise ProtocolError("too many rounds of questions", limit=AUTH_ROUNDS_MAX, phase="authentication")
        self._outstanding = None
        self._prompts = count
        return PromptsReceived(visible(name), _shown(instructions), prompts)

    #: Message 60 means what the request under way makes it mean.
    _METHOD_MESSAGES: ClassVar[dict[str, Callable[[ClientAuth, bytes], AuthEvent]]] = {
        _QUERY: _on_pk_ok,
        PASSWORD: _on_passwd_changereq,
        KEYBOARD_INTERACTIVE: _on_info_request,
    }

    def _on_method_message(self, payload: bytes) -> AuthEvent:
        handler = self._METHOD_MESSAGES.get(self._outstanding or "")
        if handler is None:
            raise ProtocolError("message 60 does not belong to a request", phase="authentication")
        return handler(self, payload)

    _HANDLERS: ClassVar[dict[int, Callable[[ClientAuth, bytes], AuthEvent]]] = {
        MSG_SERVICE_ACCEPT: _on_service_accept,
        MSG_USERAUTH_FAILURE: _on_failure,
        MSG_USERAUTH_SUCCESS: _on_success,
        MSG_USERAUTH_BANNER: _on_banner,
        MSG_USERAUTH_PK_OK: _on_method_message,
    }


def _key_fields(key: PublicKey, algorithm: str) -> bytes:
    """Algorithm and key blob, as a query, a signed request and PK_OK have them."""
    if algorithm not in key.signature_algorithms:
        raise LocalError(f"a {key.algorithm} key does not sign with {visible(algorithm)}")
    return string(algorithm.encode("ascii")) + string(key.blob)

"""The client's login: which method, which key, in which order (RFC 4252), over the sans-IO machine."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, cast

from ..auth import (
    AuthEvent,
    AuthRefused,
    AuthSucceeded,
    BannerReceived,
    ClientAuth,
    KeyAccepted,
    PasswordChangeRequested,
    PromptsReceived,
    choose_algorithms,
)
from ..auth.messages import KEYBOARD_INTERACTIVE, NONE, PASSWORD, PUBLICKEY
from ..constants import EXT_SERVER_SIG_ALGS
from ..errors import AuthenticationFailed, DisconnectReason, KeyFileError, LocalError, PeerDisconnected
from ..keys import PrivateKey
from ..transport import SSHTransport

__all__ = ("DEFAULT_KEY_FILES", "KeyboardInteractive", "Login", "Passphrase", "Password")

Passphrase = str | Callable[[str], Awaitable[str | None]] | None
Password = str | Callable[[], Awaitable[str | None]] | None
KeyboardInteractive = Callable[[str, str, list[tuple[str, bool]]], Awaitable[list[str]]]

#: What ``client_keys=None`` tries, where they exist.
DEFAULT_KEY_FILES: Final = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

_FACTORS_MAX: Final = 8  # steps of one login; a server that wants more never has enough
_PATIENCE: Final = (DisconnectReason.PROTOCOL_ERROR, DisconnectReason.NO_MORE_AUTH_METHODS_AVAILABLE)


class Login:
    """One login. ``ask`` calls a callback of the application off the connection's deadline."""

    def __init__(
        self,
        username: str,
        core: SSHTransport,
        ask: Callable[..., Awaitable[Any]],
        *,
        client_keys: Sequence[str | os.PathLike[str] | PrivateKey] | None,
        passphrase: Passphrase,
        password: Password,
        keyboard_interactive: KeyboardInteractive | None,
    ) -> None:
        if isinstance(client_keys, str | os.PathLike | PrivateKey):
            client_keys = [client_keys]
        self._username = username
        self._core = core
        self._ask = ask
        self._keys = client_keys
        self._passphrase = passphrase
        self._password = password
        self._questions = keyboard_interactive
        self._events: deque[AuthEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False
        self._auth: ClientAuth | None = None
        self._methods: tuple[str, ...] | None = None  # what the server would take; None: it has not said
        self._steps = 0  # partial successes
        self._tried: list[str] = []
        self._spent: set[str] = set()  # what a partial success was for
        self._refused: set[str] = set()  # since the last partial success
        self._loaded: dict[int, PrivateKey | None] = {}
        self._link: Any = None
        self.banner = ""

    # --- between the link and the coroutine -----------------------------------------------------------

    def attach(self, link: Any, succeeded: Callable[[], None]) -> None:
        """Take the link's payloads from here on; ``succeeded`` is called to hand them over.

        It is called from within the receive path: a server's first request (OpenSSH's hostkeys-00)
        can stand in the same read as its SUCCESS, before :meth:`run` wakes up.
        """
        self._link = link
        self._succeeded = succeeded
        link.receive = self._received

    def _received(self, payload: bytes) -> None:
        assert self._auth is not None
        event = self._auth.receive(payload)
        if isinstance(event, BannerReceived):
            self.banner += event.escaped
        elif event is not None:
            if isinstance(event, AuthSucceeded):
                self._succeeded()
            self._events.append(event)
            self._wake()

    def stop(self) -> None:
        """The connection ended."""
        self._stopped = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _answer(self) -> AuthEvent:
        """What the server says to the last request."""
        self._link.settle()
        while not self._events:
            if self._stopped or not self._link.is_open:
                raise self._end()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events.popleft()

    def _end(self) -> Exception:
        error = self._link.error
        if isinstance(error, PeerDisconnected) and error.reason in _PATIENCE and self._tried:
            # The server's way to refuse for good: "too many authentication failures".
            failed = self._failed(f": the server said {error.description!r}")
            failed.__cause__ = error
            return failed
        renewed: Exception = error.renewed()
        renewed.__cause__ = error
        return renewed

    def _failed(self, why: str = "") -> AuthenticationFailed:
        tried = ", ".join(self._tried) or "nothing to try"
        takes = ", ".join(self._methods or ()) or "nothing more"
        return AuthenticationFailed(
            f"login as {self._username!r} refused{why} (tried: {tried}; the server takes: {takes})",
            tried=self._tried,
            remaining=self._methods or (),
            partial_success=self._steps > 0,
        )

    # --- the login itself -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Log in.

        Raises:
            AuthenticationFailed: the server refused all there is to try.
            SSHError: what ended the connection.
        """
        core = self._core
        assert core.session_id is not None
        self._auth = auth = ClientAuth(self._username, core.session_id, core, secure=core.secure)
        auth.start()
        await self._answer()
        for _ in range(_FACTORS_MAX):
            # Once more after a partial success: a key can be wanted behind a password (RFC 4252, section 5.1).
            steps = self._steps
            if await self._with_keys(auth) or await self._with_questions(auth) or await self._with_password(auth):
                return
            if self._steps == steps:
                break
        if self._methods is None:
            auth.try_none()
            if self._settled(NONE, await self._outcome(NONE)):
                return
        raise self._failed()

    def _open_to(self, method: str, item: str | None = None) -> bool:
        """Whether the server may take this: it would take the method, and has not judged the item in this step."""
        allowed = self._methods is None or method in self._methods
        return allowed and (item or method) not in self._spent | self._refused

    async def _outcome(self, item: str) -> AuthEvent:
        """The answer to what was just sent, which counts as tried even if the server hangs up on it."""
        self._tried.append(item)
        return await self._answer()

    def _settled(self, item: str, event: AuthEvent) -> bool:
        """Whether the login is over; a refusal says what the server would still take."""
        if isinstance(event, AuthSucceeded):
            return True
        if isinstance(event, AuthRefused):
            self._methods = event.methods
            if event.partial_success:
                self._steps += 1
                self._spent.add(item)
                self._refused.clear()  # the next step may be what they are for
            else:
                self._refused.add(item)
        return False

    async def _with_keys(self, auth: ClientAuth) -> bool:
        sources = list(self._key_sources())
        for number, source in enumerate(sources):
            if not self._open_to(PUBLICKEY):
                return False
            if number not in self._loaded:
                self._loaded[number] = await self._load(source)
            key = self._loaded[number]
            if key is not None and await self._with_key(auth, key, ask_first=len(sources) > 1):
                return True
        return False

    async def _with_key(self, auth: ClientAuth, key: PrivateKey, *, ask_first: bool) -> bool:
        # EXT_INFO may come behind the keys in a segment of its own, and again during login (RFC 8308, section 2.4).
        listed = self._core.peer_extensions.get(EXT_SERVER_SIG_ALGS)
        known = tuple(listed.decode("ascii", "replace").split(",")) if listed is not None else None
        for algorithm in choose_algorithms(key, known):
            name = f"publickey {algorithm} {key.public_key.fingerprint()}"
            if not self._open_to(PUBLICKEY, name):
                continue
            if ask_first:
                # A signature that is not wanted costs more than the question.
                auth.query_key(key.public_key, algorithm)
                event = await self._outcome(name)
                if isinstance(event, KeyAccepted):
                    auth.try_key(key, algorithm)
                    event = await self._answer()
            else:
                auth.try_key(key, algorithm)
                event = await self._outcome(name)
            if self._settled(name, event):
                return True
            if isinstance(event, AuthRefused) and event.partial_success:
                break
        return False

    def _key_sources(self) -> Iterator[str | os.PathLike[str] | PrivateKey]:
        if self._keys is not None:
            yield from self._keys
            return
        for name in DEFAULT_KEY_FILES:
            path = os.path.expanduser(name)
            if os.path.exists(path):
                yield path

    async def _load(self, source: str | os.PathLike[str] | PrivateKey) -> PrivateKey | None:
        """A key ready for use. Default files that cannot be used are passed over, named ones are an error."""
        if isinstance(source, PrivateKey):
            return source
        loop = asyncio.get_running_loop()
        try:
            try:
                # A key that is not encrypted costs 0.1 ms; a thread for it would cost four times that.
                return PrivateKey.load(source)
            except KeyFileError as error:
                if not error.passphrase_needed or self._passphrase is None:
                    raise
                secret: Any = self._passphrase
                if callable(secret):
                    secret = await self._ask(secret, os.fspath(source))
                if secret is None:
                    return None
                return await loop.run_in_executor(None, PrivateKey.load, source, secret)
        except KeyFileError:
            if self._keys is None:
                return None
            raise

    async def _with_questions(self, auth: ClientAuth) -> bool:
        if self._questions is None or not self._open_to(KEYBOARD_INTERACTIVE):
            return False
        steps = self._steps
        if await self._interactive(auth, self._asked):
            return True
        if self._steps > steps:
            self._spent.discard(KEYBOARD_INTERACTIVE)  # the next step may well be other questions
        return False

    async def _asked(self, event: PromptsReceived) -> list[str]:
        answers = await self._ask(self._questions, event.name, event.instructions, list(event.prompts))
        if not isinstance(answers, list | tuple) or not all(isinstance(answer, str) for answer in answers):
            raise LocalError("keyboard_interactive must return a list of str")
        return list(answers)

    async def _interactive(self, auth: ClientAuth, answer: Callable[[PromptsReceived], Awaitable[list[str]]]) -> bool:
        auth.try_keyboard_interactive()
        event = await self._outcome(KEYBOARD_INTERACTIVE)
        while isinstance(event, PromptsReceived):
            auth.answer(await answer(event))
            event = await self._answer()
        return self._settled(KEYBOARD_INTERACTIVE, event)

    async def _with_password(self, auth: ClientAuth) -> bool:
        if self._open_to(PASSWORD):
            secret = await self._password_text()
            if secret is None:
                return False
            auth.try_password(secret)
            event = await self._outcome(PASSWORD)
            if isinstance(event, PasswordChangeRequested):
                raise self._failed(": the password has expired")
            if self._settled(PASSWORD, event):
                return True
            if isinstance(event, AuthRefused) and event.partial_success:
                return False
        if self._questions is None and self._methods is not None and self._open_to(KEYBOARD_INTERACTIVE):
            secret = await self._password_text()
            return secret is not None and await self._interactive(auth, self._password_for(secret))
        return False

    async def _password_text(self) -> str | None:
        """The password; a callable is asked once."""
        secret: Any = self._password
        if callable(secret):
            self._password = secret = await self._ask(secret)
        return cast("str | None", secret)

    def _password_for(self, secret: str) -> Callable[[PromptsReceived], Awaitable[list[str]]]:
        """Many servers ask for the password as a question: one hidden prompt gets it, once, nothing else does."""
        given = False

        async def answer(event: PromptsReceived) -> list[str]:
            nonlocal given
            hidden = len(event.prompts) == 1 and not event.prompts[0][1]
            if event.prompts and (given or not hidden):
                raise self._failed(": the server asks questions")
            given = given or hidden
            return [secret] * len(event.prompts)

        return answer

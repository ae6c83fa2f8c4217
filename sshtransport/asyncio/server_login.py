"""The server's login: requests of the sans-IO machine, judged by the application's authenticator (RFC 4252)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..auth import (
    AnswersReceived,
    AuthEvent,
    AuthInfo,
    Grant,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    NoneRequested,
    PartialSuccess,
    PasswordPresented,
    ServerAuth,
    verdict_of,
)
from ..errors import LocalError, RemoteError
from ..keys import HOST_KEY_ALGORITHMS
from ..wire import visible
from .limits import ServerLimits

if TYPE_CHECKING:
    from .server_connection import ServerConnection

__all__ = ("ServerLogin", "methods_of")

_logger = logging.getLogger("sshtransport.server")

_CHECKS: Final = {
    "publickey": "check_public_key",
    "password": "check_password",
    "keyboard-interactive": "check_keyboard_interactive",
}
_NAME_SHOWN: Final = 64  # characters of a user name in a log line


def methods_of(authenticator: object) -> frozenset[str]:
    """The login methods that an authenticator has checks for.

    Raises:
        LocalError: it has none: nobody could log in.
    """
    methods = frozenset(name for name, check in _CHECKS.items() if callable(getattr(authenticator, check, None)))
    if not methods:
        raise LocalError(f"authenticator has none of {', '.join(_CHECKS.values())}: {type(authenticator).__name__}")
    return methods


class ServerLogin:
    """Judges the login requests of one connection; ``done`` is called with the user name and the grant.

    A check may be a coroutine: it runs as a task, and requests that come meanwhile wait in the
    machine. One that raises refuses.
    """

    def __init__(
        self,
        connection: ServerConnection,
        authenticator: Any,
        methods: frozenset[str],
        limits: ServerLimits,
        done: Callable[[str, Grant], None],
    ) -> None:
        link = connection.link
        core = link.core
        assert core.session_id is not None
        self._connection = connection
        self._link = link
        self._authenticator = authenticator
        self._done = done
        self._auth = ServerAuth(
            core.session_id,
            core,
            methods=methods,
            signature_algorithms=HOST_KEY_ALGORITHMS,
            secure=core.secure,
            max_tries=limits.max_auth_tries,
            max_key_queries=limits.max_key_queries,
            rsa_min_bits=core.config.rsa_min_bits,
        )
        self._task: asyncio.Task[None] | None = None  # the check that is running
        self._answers: asyncio.Future[list[str]] | None = None
        self._username = ""
        self._method = ""
        self._secrets: tuple[str, ...] = ()  # what must not get into the log
        link.receive = self._receive

    def stop(self) -> None:
        """The connection ended: a check that is running is cancelled."""
        self._secrets = ()
        self._answers = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    # --- requests ---------------------------------------------------------------------------------

    def _receive(self, payload: bytes) -> None:
        self._judge_all(self._auth.receive(payload))

    def _judge_all(self, event: AuthEvent | None) -> None:
        """Judge until nothing waits, or a check takes its time."""
        while event is not None:
            if not self._judge(event):
                return
            event = self._auth.next_event()

    def _judge(self, event: AuthEvent) -> bool:
        """Whether the event is dealt with; if not, a task gives the verdict later."""
        if isinstance(event, AnswersReceived):
            self._secrets += event.answers
            if self._answers is not None and not self._answers.done():
                self._answers.set_result(list(event.answers))
                return False
            self._give(event, None)  # the check did not wait for them
            return True
        if isinstance(event, KeyboardInteractiveAborted):
            self.stop()
            return True
        return self._check(event)

    def _check(self, event: AuthEvent) -> bool:
        self._secrets = ()
        try:
            answer = self._ask_authenticator(event)
        except Exception as error:
            self._log_fault(error)
            answer = None
        if not inspect.isawaitable(answer):
            self._give(event, answer)
            return True
        self._task = self._connection.spawn(self._wait(event, answer))
        if inspect.iscoroutine(answer):
            # The task may be cancelled before its first step, and then nobody has awaited this one.
            self._task.add_done_callback(lambda _: answer.close())
        return False

    def _ask_authenticator(self, event: AuthEvent) -> object:
        authenticator = self._authenticator
        if isinstance(event, KeyQueried | KeyPresented):
            self._username, self._method = event.username, "publickey"
            return authenticator.check_public_key(event.username, event.key, self._info())
        if isinstance(event, PasswordPresented):
            self._username, self._method = event.username, "password"
            self._secrets = (event.password,)
            return authenticator.check_password(event.username, event.password, self._info())
        if isinstance(event, KeyboardInteractiveRequested):
            self._username, self._method = event.username, "keyboard-interactive"
            return authenticator.check_keyboard_interactive(event.username, self._ask, self._info())
        assert isinstance(event, NoneRequested)
        self._username, self._method = event.username, "none"
        return None

    def _info(self) -> AuthInfo:
        connection = self._connection
        return AuthInfo(
            now=time.time(),
            peer_address=connection.peer_address,
            peer_port=connection.peer_port,
            completed=self._auth.completed,
            connection=connection,
        )

    # --- checks that take their time ----------------------------------------------------------------

    async def _wait(self, event: AuthEvent, answer: Awaitable[object]) -> None:
        verdict: object = None
        try:
            verdict = await answer
        except asyncio.CancelledError:
            if self._task is not asyncio.current_task():
                raise
        except Exception as error:
            self._log_fault(error)
        if self._task is not asyncio.current_task() or not self._link.is_open:
            return  # aborted; it did not let itself be cancelled
        self._task = None
        if self._auth.response_expected:
            return  # it gave up waiting: the answers are refused when they come
        try:
            self._give(event, verdict)
            self._judge_all(self._auth.next_event())
        except RemoteError as error:
            self._link.fail(error)
        else:
            self._link.settle()

    async def _ask(self, name: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        """Put questions to the client; returns its answers, as many as there are questions (RFC 4256)."""
        if self._task is not asyncio.current_task():
            raise LocalError("questions can be asked while the check runs, by the check itself")
        self._auth.ask(name, instructions, prompts)
        waiter: asyncio.Future[list[str]] = self._link.loop.create_future()
        self._answers = waiter
        try:
            # What had come before the questions counts too: another request drops them.
            self._judge_all(self._auth.next_event())
            self._link.settle()
            return await waiter
        except RemoteError as error:
            self._link.fail(error)
            raise
        finally:
            if self._answers is waiter:
                self._answers = None

    # --- verdicts -----------------------------------------------------------------------------------

    def _give(self, event: AuthEvent, answer: object) -> None:
        auth = self._auth
        verdict = verdict_of(answer)
        if isinstance(event, KeyQueried):
            if verdict is None:
                auth.refuse()
            else:
                auth.key_ok()
            return
        address = self._connection.peer_address
        what = (self._method, visible(self._username, _NAME_SHOWN), address)
        if verdict is None:
            if not isinstance(event, NoneRequested):
                _logger.info("login refused: %s for '%s' from %s", *what)
            auth.refuse()
        elif isinstance(verdict, PartialSuccess):
            _logger.info("login goes on: %s for '%s' from %s", *what)
            auth.partial()
        else:
            _logger.info("login: %s for '%s' from %s", *what)
            auth.accept()
            self._secrets = ()
            self._done(self._username, verdict)

    def _log_fault(self, error: Exception) -> None:
        """The check raised. Its message stays out of the log where it holds what the client sent."""
        lines = "".join(traceback.format_exception(error))
        forms = [form for secret in self._secrets if secret for form in (secret, repr(secret)[1:-1])]
        if any(form in lines for form in forms):
            lines = "".join(traceback.format_tb(error.__traceback__)) + type(error).__name__
        _logger.error(
            "the authenticator failed: %s for '%s'\n%s", self._method, visible(self._username, _NAME_SHOWN), lines
        )

"""Logins at a server: what authenticators may say, how long they may take, what gets into the log."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from sshtransport import (
    PARTIAL_SUCCESS,
    AuthenticationFailed,
    AuthInfo,
    AuthorizedKeys,
    ConnectionLost,
    Grant,
    PublicKey,
)
from sshtransport.asyncio.limits import ServerLimits
from sshtransport.asyncio.login import Login
from sshtransport.asyncio.server_connection import ServerConnection
from sshtransport.asyncio.server_process import ServerProcess
from sshtransport.constants import (
    MSG_SERVICE_ACCEPT,
    MSG_SERVICE_REQUEST,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
)
from sshtransport.wire import boolean, byte, string
from tests.support.private_keys import KEY_TYPES, private_key
from tests.support.servers import HOST, PASSWORD, USERNAME, client, serving

Ask = Callable[[str, str, Sequence[tuple[str, bool]]], Awaitable[list[str]]]


async def whoami(process: ServerProcess) -> None:
    process.stdout.write(process.username.encode())


class Says:
    """Answers every password with one thing, after some turns of the loop or at once."""

    def __init__(self, answer: Any, slow: bool = False) -> None:
        self.answer = answer
        self.slow = slow
        self.calls: list[tuple[str, str, AuthInfo]] = []

    def check_password(self, username: str, password: str, info: AuthInfo) -> Any:
        self.calls.append((username, password, info))
        return self._later() if self.slow else self._say()

    def _say(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def _later(self) -> Any:
        await asyncio.sleep(0.01)
        return self._say()


@pytest.mark.parametrize("slow", [False, True])
async def test_a_password(slow: bool) -> None:
    says = Says(True, slow)
    async with serving(whoami, authenticator=says) as server, client(server, username="zoë") as conn:
        assert (await conn.run("x", encoding="utf-8")).stdout == "zoë"
        (connection,) = server.connections
        assert connection.grant == Grant()
        ((username, password, info),) = says.calls
        assert (username, password) == ("zoë", PASSWORD)
        assert (info.peer_address, info.peer_port, info.completed) == (HOST, connection.peer_port, ())
        assert info.connection is connection
        assert connection.get_extra_info("peername") == (HOST, connection.peer_port)


ANSWERS = [False, None, 1, "yes", object(), RuntimeError("broken"), KeyError(PASSWORD)]


@pytest.mark.parametrize(
    ("answer", "slow"),
    [(answer, slow) for answer in ANSWERS for slow in (False, True)] + [(asyncio.CancelledError(), True)],
)
async def test_everything_else_refuses(answer: Any, slow: bool, caplog: pytest.LogCaptureFixture) -> None:
    says = Says(answer, slow)
    async with serving(whoami, authenticator=says) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server)
        assert caught.value.remaining == ("password",)
        assert len(says.calls) == 1
    faults = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(faults) == isinstance(answer, Exception)
    for record in faults:
        assert record.name == "sshtransport.server"
        assert type(answer).__name__ in record.getMessage()
        assert "_say" in record.getMessage()
    assert PASSWORD not in caplog.text


async def test_log_lines_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(whoami, authenticator=Says(RuntimeError("x"))) as server:
        with pytest.raises(AuthenticationFailed):
            await client(server, username="a\nroot logged in\x1b[2J")
    assert "'a\\nroot logged in\\x1b[2J'" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("algorithm", KEY_TYPES)
async def test_keys_of_every_type(algorithm: str) -> None:
    key, stranger = private_key(algorithm, 1), private_key(algorithm, 2)
    auth = AuthorizedKeys([key.public_key.to_text()])
    async with serving(whoami, authenticator=auth) as server:
        async with client(server, client_keys=[stranger, key]) as conn:
            assert (await conn.run("x")).exit_status == 0
        with pytest.raises(AuthenticationFailed):
            await client(server, client_keys=[stranger])


async def test_a_key_and_a_password() -> None:
    class TwoFactors:
        """A key first, then a password; a password alone is not enough."""

        async def check_public_key(self, username: str, key: PublicKey, info: AuthInfo) -> object:
            await asyncio.sleep(0)
            return PARTIAL_SUCCESS if key == private_key("ssh-ed25519", 1).public_key else None

        def check_password(self, username: str, password: str, info: AuthInfo) -> object:
            return info.completed == ("publickey",) and password == PASSWORD and Grant(force_command="x")

    async with serving(whoami, authenticator=TwoFactors()) as server:
        async with client(server, client_keys=[private_key("ssh-ed25519", 1)], password=PASSWORD) as conn:
            assert (await conn.run("x")).stdout == USERNAME.encode()
        with pytest.raises(AuthenticationFailed):
            await client(server, password=PASSWORD)


class Questions:
    """Asks until it has heard enough."""

    def __init__(self) -> None:
        self.running = 0

    async def check_keyboard_interactive(self, username: str, ask: Ask, info: AuthInfo) -> bool:
        self.running += 1
        try:
            (name,) = await ask("Hello", "Who are you?", [("Name: ", True)])
            if name == "nobody":
                raise LookupError(name)
            assert await ask("", "", []) == []
            return await ask("", "", [("A: ", False), ("B: ", False)]) == ["a", name]
        finally:
            self.running -= 1


async def test_questions_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    names = ["me", "you", "nobody"]

    async def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        seen.append((title, instructions, prompts))
        return [names.pop(0)] if len(prompts) == 1 else ["a", "me"][: len(prompts)]

    questions = Questions()
    async with serving(whoami, authenticator=questions) as server:
        async with client(server, keyboard_interactive=answer) as conn:
            assert (await conn.run("x")).stdout == USERNAME.encode()
        assert seen == [
            ("Hello", "Who are you?", [("Name: ", True)]),
            ("", "", []),
            ("", "", [("A: ", False), ("B: ", False)]),
        ]
        for _ in range(2):
            with pytest.raises(AuthenticationFailed):
                await client(server, keyboard_interactive=answer)
    assert questions.running == 0
    assert "LookupError" in caplog.text
    assert "nobody" not in caplog.text


@pytest.mark.parametrize("how", ["leaves", "grace"])
async def test_a_client_that_does_not_answer(how: str) -> None:
    questions = Questions()
    asked = asyncio.Event()

    async def answer(*_: Any) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    limits = ServerLimits(login_grace=0.2 if how == "grace" else 60)
    async with serving(whoami, authenticator=questions, limits=limits) as server:
        connecting = asyncio.ensure_future(client(server, keyboard_interactive=answer))
        await asked.wait()
        assert questions.running == 1
        if how == "grace":
            while server.connections:
                await server._change()
        connecting.cancel()
        with pytest.raises((asyncio.CancelledError, ConnectionLost)):
            await connecting
        while server.connections or questions.running:
            await server._change()


class Impatient:
    """Gives up waiting for answers."""

    async def check_keyboard_interactive(self, username: str, ask: Ask, info: AuthInfo) -> bool:
        try:
            async with asyncio.timeout(0.02):
                await ask("", "", [("?", True)])
        except TimeoutError:
            pass
        return True


async def test_a_check_that_does_not_wait_for_its_answers() -> None:
    """The verdict came before the answers: nothing is proven, whatever it says."""

    async def answer(*_: Any) -> list[str]:
        await asyncio.sleep(0.1)
        return ["!"]

    async with serving(whoami, authenticator=Impatient()) as server:
        with pytest.raises(AuthenticationFailed):
            await client(server, keyboard_interactive=answer)


async def test_another_request_drops_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 4252, section 5.1: the check is cancelled, the new request judged, the old one never answered."""

    class Both(Questions, Says):
        def __init__(self) -> None:
            Questions.__init__(self)
            Says.__init__(self, True, slow=True)

    replies: list[int] = []

    async def run(self: Login) -> None:
        """Our client's machine never does that: its messages are sent past it."""
        over = asyncio.Event()

        def receive(payload: bytes) -> None:
            replies.append(payload[0])
            if payload[0] == MSG_USERAUTH_SUCCESS:
                self._succeeded()
                over.set()

        self._link.receive = receive
        head = byte(MSG_USERAUTH_REQUEST) + string(USERNAME.encode()) + string(b"ssh-connection")
        self._core.send(byte(MSG_SERVICE_REQUEST) + string(b"ssh-userauth"))
        for _ in range(2):
            self._core.send(head + string(b"keyboard-interactive") + string(b"") + string(b""))
        self._core.send(head + string(b"password") + boolean(False) + string(PASSWORD.encode()))
        self._link.settle()
        await over.wait()

    monkeypatch.setattr(Login, "run", run)
    auth = Both()
    async with serving(whoami, authenticator=auth) as server, client(server) as conn:
        assert (await conn.run("x")).stdout == USERNAME.encode()
    assert auth.running == 0
    assert len(auth.calls) == 1
    assert (replies[0], replies[-1]) == (MSG_SERVICE_ACCEPT, MSG_USERAUTH_SUCCESS)
    assert MSG_USERAUTH_FAILURE not in replies


async def test_too_many_tries_end_the_connection() -> None:
    async def answer(*_: Any) -> list[str]:
        return ["wrong"]

    class Both(Says):
        async def check_keyboard_interactive(self, username: str, ask: Ask, info: AuthInfo) -> bool:
            return await ask("", "", [("?", False)]) == ["right"]

    async with serving(whoami, authenticator=Both(False), limits=ServerLimits(max_auth_tries=2)) as server:
        with pytest.raises(AuthenticationFailed, match="too many authentication failures"):
            await client(server, keyboard_interactive=answer, password="wrong")
        while server.connections:
            await server._change()


async def test_a_slow_check_blocks_nobody_and_ends_with_its_connection() -> None:
    cancelled = asyncio.Event()

    class Slow:
        async def check_password(self, username: str, password: str, info: AuthInfo) -> bool:
            assert isinstance(info.connection, ServerConnection)
            if username == "fast":
                return True
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return True

    async with serving(whoami, authenticator=Slow()) as server:
        waiting = asyncio.ensure_future(client(server, username="slow"))
        async with client(server, username="fast") as conn:
            assert (await conn.run("x")).stdout == b"fast"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await cancelled.wait()


async def test_no_proof_is_no_login() -> None:
    async with serving(whoami, authenticator=Says(True)) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server, password=None)
        assert caught.value.remaining == ("password",)


async def test_a_check_that_was_never_started_does_not_complain() -> None:
    """The connection ends in the very turn that gives the check: its task is cancelled before its first step."""

    class Hasty:
        def check_password(self, username: str, password: str, info: Any) -> Any:
            asyncio.get_running_loop().call_soon(info.connection.abort)  # before the check's first step
            return self._check()

        async def _check(self) -> bool:
            raise AssertionError("not to be started")

    async with serving(whoami, authenticator=Hasty()) as server:
        with pytest.raises(ConnectionLost):
            await client(server)
    gc.collect()  # a coroutine that was never awaited says so now, and that fails the test

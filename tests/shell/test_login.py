"""The client's login: which key, which method, in which order; against sshd, asyncssh and our own server."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

import sshtransport
from sshtransport import (
    INSECURE_ACCEPT_ANY_HOST_KEY,
    PARTIAL_SUCCESS,
    AuthenticationFailed,
    AuthInfo,
    ClientConnection,
    KeyFileError,
    LocalError,
    Opening,
    PeerDisconnected,
    PrivateKey,
    ServerLimits,
    SSHTransport,
)
from sshtransport import transport as transport_module
from sshtransport.asyncio import client as client_module
from sshtransport.messages import ext_info
from tests.support.openssh import HOST, USERNAME, Sshd
from tests.support.peers import HalfServer, Proxy, fake_server
from tests.support.private_keys import KEY_TYPES, private_key
from tests.support.servers import PASSWORD, client, echo, serving

RIGHT = [private_key(kind, 20) for kind in KEY_TYPES]
WRONG = private_key("ssh-ed25519", 21)


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """Takes one key of each type."""
    with Sshd(authorized_keys=[key.public_key.to_text() for key in RIGHT]) as server:
        yield server


def login(sshd: Sshd, **options: Any) -> Opening[ClientConnection]:
    options.setdefault("port", sshd.port)
    options.setdefault("known_hosts", sshd.known_hosts)
    return sshtransport.connect(sshd.host, username=USERNAME, **options)


def fingerprint(key: PrivateKey) -> str:
    return key.public_key.fingerprint()


# --- keys, at sshd ------------------------------------------------------------------------------------------


@pytest.mark.sshd
@pytest.mark.parametrize("key", RIGHT, ids=KEY_TYPES)
@pytest.mark.parametrize("protection", ["plain", "str", "callable"])
async def test_key_files(sshd: Sshd, key: PrivateKey, protection: str, tmp_path: Path) -> None:
    path = tmp_path / "id"
    path.write_bytes(key.to_openssh(None if protection == "plain" else "s3cret", rounds=1))
    asked: list[str] = []

    async def passphrase(name: str) -> str:
        await asyncio.sleep(0)
        asked.append(name)
        return "s3cret"

    async with login(
        sshd, client_keys=[path], passphrase={"plain": None, "str": "s3cret", "callable": passphrase}[protection]
    ) as connection:
        assert (await connection.run("echo in")).stdout == b"in\n"
    assert asked == ([str(path)] if protection == "callable" else [])


@pytest.mark.sshd
async def test_wrong_keys_first(sshd: Sshd) -> None:
    """Keys are asked about before anything is signed; sshd counts six refusals and hangs up."""
    async with login(sshd, client_keys=[WRONG, private_key("ssh-rsa", 21), RIGHT[0]]) as connection:
        assert not connection.is_closed()


@pytest.mark.sshd
async def test_nothing_to_try(sshd: Sshd) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await login(sshd, client_keys=())
    error = caught.value
    assert (error.tried, error.remaining, error.partial_success) == (("none",), ("publickey",), False)
    assert error.phase == "authentication"
    assert USERNAME in str(error) and "publickey" in str(error)


@pytest.mark.sshd
async def test_only_wrong_ones(sshd: Sshd) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await login(sshd, client_keys=[WRONG], password="not asked for")
    assert caught.value.tried == (f"publickey ssh-ed25519 {fingerprint(WRONG)}",)
    assert caught.value.remaining == ("publickey",)


@pytest.mark.sshd
@pytest.mark.parametrize("tries", [1, 2])
async def test_the_server_has_enough(tries: int) -> None:
    """sshd ends it with DISCONNECT instead of a refusal: that is a failed login too, with what was tried."""
    keys = [WRONG, private_key("ssh-ed25519", 22), private_key("ssh-ed25519", 23)]
    async with Sshd(options={"MaxAuthTries": tries}) as sshd:
        with pytest.raises(AuthenticationFailed, match="Too many authentication failures") as caught:
            await login(sshd, client_keys=keys)
    assert caught.value.tried == tuple(f"publickey ssh-ed25519 {fingerprint(key)}" for key in keys[:tries])
    assert isinstance(caught.value.__cause__, PeerDisconnected)


@pytest.mark.sshd
async def test_two_keys_are_wanted() -> None:
    """Known bugs I 121: partial success, and the same key is not shown twice."""
    keys = [private_key("ssh-ed25519", 24), WRONG, private_key("ssh-ed25519", 25)]
    right = [key.public_key.to_text() for key in (keys[0], keys[2])]
    async with Sshd(authorized_keys=right, options={"AuthenticationMethods": "publickey,publickey"}) as sshd:
        async with login(sshd, client_keys=keys) as connection:
            assert (await connection.run("echo in")).stdout == b"in\n"
        with pytest.raises(AuthenticationFailed) as caught:
            await login(sshd, client_keys=keys[:1])
        assert caught.value.partial_success
        assert (len(caught.value.tried), caught.value.remaining) == (1, ("publickey",))


@pytest.mark.sshd
async def test_the_banner(tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_bytes(b"Welcome\n\x1b[31mred\n")
    async with Sshd(authorized_keys=[RIGHT[0].public_key.to_text()], options={"Banner": str(banner)}) as sshd:
        connection = await login(sshd, client_keys=[RIGHT[0]])
        assert connection.banner == "Welcome\n\\x1b[31mred\n"
        connection.close()
        await connection.wait_closed()


@pytest.mark.sshd
async def test_default_keys(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there are tried; what cannot be read, or has no passphrase here, is passed over."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_bytes(WRONG.to_openssh("nobody knows it", rounds=1))
    (tmp_path / ".ssh" / "id_ecdsa").write_text("not a key")
    with pytest.raises(AuthenticationFailed) as caught:
        await login(sshd)
    assert caught.value.tried == ("none",)
    (tmp_path / ".ssh" / "id_rsa").write_bytes(RIGHT[KEY_TYPES.index("ssh-rsa")].to_openssh())
    async with login(sshd):
        pass


# --- named keys that cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize("passphrase", [None, "s3cret"])
async def test_a_named_key_that_stays_locked(passphrase: str | None, tmp_path: Path) -> None:
    path = tmp_path / "id"
    path.write_bytes(RIGHT[0].to_openssh("right", rounds=1))
    async with serving(echo) as server:
        with pytest.raises(KeyFileError) as caught:
            await client(server, client_keys=[path], passphrase=passphrase)
    assert caught.value.passphrase_needed
    assert "s3cret" not in str(caught.value)


async def test_no_passphrase_from_the_callable(tmp_path: Path) -> None:
    """None says: go on without this key. It is asked once."""
    path = tmp_path / "id"
    path.write_bytes(RIGHT[0].to_openssh("right", rounds=1))
    asked: list[str] = []

    async def passphrase(name: str) -> None:
        asked.append(name)

    async with serving(echo) as server, client(server, client_keys=[path], passphrase=passphrase, password=PASSWORD):
        assert asked == [str(path)]


async def test_a_missing_key_file(tmp_path: Path) -> None:
    async with serving(echo) as server:
        with pytest.raises(KeyFileError):
            await client(server, client_keys=[tmp_path / "none"])


# --- password and questions, at asyncssh --------------------------------------------------------------------


class AsyncsshServer(asyncssh.SSHServer):
    """Takes a password, or two rounds of questions."""

    methods: tuple[str, ...] = ("password", "keyboard-interactive")
    questions: tuple[tuple[str, str, str, list[tuple[str, bool]]], ...] = (
        ("Round 1", "Who are you?", "", [("Name: ", True), ("Secret: ", False)]),
        ("Round 2", "", "", [("Code: ", False)]),
    )

    def __init__(self) -> None:
        self.answers: list[list[str]] = []

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return "password" in self.methods

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD

    def kbdint_auth_supported(self) -> bool:
        return "keyboard-interactive" in self.methods

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return self.questions[0]

    def validate_kbdint_response(self, username: str, responses: Any) -> Any:
        self.answers.append(list(responses))
        if len(self.answers) < len(self.questions):
            return self.questions[len(self.answers)]
        return self.answers == [["me", PASSWORD], ["123"]]


class AsksThePassword(AsyncsshServer):
    methods = ("keyboard-interactive",)
    questions = (("", "", "", [("Password: ", False)]),)

    def validate_kbdint_response(self, username: str, responses: Any) -> Any:
        return list(responses) == [PASSWORD]


class AsksMore(AsksThePassword):
    questions = (("", "", "", [("Password: ", False), ("Code: ", False)]),)


class At:
    """An asyncssh server, and logins to it."""

    def __init__(self, factory: type[AsyncsshServer]) -> None:
        self._factory = factory

    async def __aenter__(self) -> At:
        key = asyncssh.import_private_key(private_key("ssh-ed25519").to_openssh())
        self._server = await asyncssh.listen(HOST, 0, server_factory=self._factory, server_host_keys=[key])
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def login(self, **options: Any) -> Opening[ClientConnection]:
        return sshtransport.connect(
            HOST,
            self._server.get_port(),
            username="me",
            client_keys=(),
            known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY,
            **options,
        )


async def test_a_password_at_asyncssh() -> None:
    asked = 0

    async def password() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return PASSWORD

    async with At(AsyncsshServer) as server:
        async with server.login(password=PASSWORD), server.login(password=password):
            assert asked == 1
        with pytest.raises(AuthenticationFailed) as caught:
            await server.login(password="wrong", keyboard_interactive=None)
        assert caught.value.tried[0] == "password"
        assert "wrong" not in str(caught.value)


async def test_questions_at_asyncssh() -> None:
    seen: list[tuple[str, str, list[tuple[str, bool]]]] = []

    async def answer(name: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        seen.append((name, instructions, prompts))
        return ["me", PASSWORD] if len(prompts) == 2 else ["123"]

    async with At(AsyncsshServer) as server, server.login(keyboard_interactive=answer):
        assert seen == [
            ("Round 1", "Who are you?", [("Name: ", True), ("Secret: ", False)]),
            ("Round 2", "", [("Code: ", False)]),
        ]


async def test_the_password_answers_one_hidden_prompt_only() -> None:
    async with At(AsksThePassword) as server, server.login(password=PASSWORD):
        pass
    async with At(AsksMore) as server:
        with pytest.raises(AuthenticationFailed, match="asks questions") as caught:
            await server.login(password=PASSWORD)
        assert caught.value.tried == ("password", "keyboard-interactive")


# --- callbacks ----------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


async def fails(*args: Any) -> Any:
    raise Broken


@pytest.mark.parametrize("what", ["password", "keyboard_interactive"])
async def test_a_callback_that_raises(what: str) -> None:
    """Its exception comes out of connect; nothing is left open."""

    class Asks:
        async def check_keyboard_interactive(self, username: str, ask: Any, info: AuthInfo) -> bool:
            await ask("", "", [("?", True)])
            return True

    options: dict[str, Any] = {"authenticator": Asks()} if what == "keyboard_interactive" else {}
    async with serving(echo, **options) as server:
        with pytest.raises(Broken):
            await client(server, **{what: fails})
        with pytest.raises(Broken):
            async with client(server, **{what: fails}):
                pytest.fail("nobody is logged in")


async def test_answers_of_a_wrong_kind() -> None:
    class Asks:
        async def check_keyboard_interactive(self, username: str, ask: Any, info: AuthInfo) -> bool:
            await ask("", "", [("?", True)])
            return True

    wrong: list[Any] = ["a text", None, [b"bytes"], ["too", "many"], []]

    async def answer(name: str, instructions: str, prompts: list[tuple[str, bool]]) -> Any:
        return wrong.pop()

    async with serving(echo, authenticator=Asks()) as server:
        while wrong:
            with pytest.raises(LocalError):
                await client(server, keyboard_interactive=answer)


async def test_every_callback_is_off_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 2: the deadline stands still while the caller's own callbacks run."""
    clocks: list[client_module.Deadline] = []

    class Watched(client_module.Deadline):
        def __init__(self, timeout: float | None) -> None:
            super().__init__(timeout)
            clocks.append(self)

    def stands_still() -> bool:
        scope = clocks[-1]._scope
        return scope is not None and scope.when() is None

    monkeypatch.setattr(client_module, "Deadline", Watched)
    path = tmp_path / "id"
    path.write_bytes(RIGHT[0].to_openssh("right", rounds=1))
    found: dict[str, bool] = {}

    async def passphrase(name: str) -> str:
        found["passphrase"] = stands_still()
        return "right"

    async def password() -> str:
        await asyncio.sleep(0)
        found["password"] = stands_still()
        return PASSWORD

    async def answer(name: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        found["answer"] = stands_still()
        return [""]

    async def verifier(host: str, port: int, key: object) -> bool:
        await asyncio.sleep(0)
        found["verifier"] = stands_still()
        return True

    class Asks:
        async def check_keyboard_interactive(self, username: str, ask: Any, info: AuthInfo) -> bool:
            await ask("", "", [("?", True)])
            return False

        def check_password(self, username: str, password: str, info: AuthInfo) -> bool:
            return True

    callbacks: dict[str, Any] = {
        "passphrase": passphrase,
        "password": password,
        "keyboard_interactive": answer,
        "host_key_verifier": verifier,
    }
    async with (
        serving(echo, authenticator=Asks()) as server,
        client(server, client_keys=[path], known_hosts=(), **callbacks),
    ):
        assert found == dict.fromkeys(("verifier", "passphrase", "answer", "password"), True)


# --- order, steps -------------------------------------------------------------------------------------------


class Steps:
    """Wants certain methods in a certain order, like AuthenticationMethods of sshd."""

    def __init__(self, *order: str) -> None:
        self._order = order
        self.asked: list[str] = []

    def _step(self, method: str, right: bool, info: AuthInfo) -> Any:
        self.asked.append(method)
        if not right or self._order[len(info.completed)] != method:
            return False
        return True if len(info.completed) + 1 == len(self._order) else PARTIAL_SUCCESS

    def check_public_key(self, username: str, key: sshtransport.PublicKey, info: AuthInfo) -> Any:
        return self._step("publickey", key in [right.public_key for right in RIGHT], info)

    def check_password(self, username: str, password: str, info: AuthInfo) -> Any:
        return self._step("password", password == PASSWORD, info)

    async def check_keyboard_interactive(self, username: str, ask: Any, info: AuthInfo) -> Any:
        answers = await ask("", "", [("Code: ", False)])
        return self._step("keyboard-interactive", answers == ["123"], info)


ORDERS = [
    ("publickey", "password"),
    ("password", "publickey"),
    ("password", "keyboard-interactive"),
    ("keyboard-interactive", "password"),
    ("keyboard-interactive", "publickey", "password"),
    ("password", "keyboard-interactive", "publickey"),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(order))
async def test_steps_in_any_order(order: tuple[str, ...]) -> None:
    """Known bugs I 121: after a partial success what was refused before is worth another try."""

    async def code(name: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return ["123"]

    options: dict[str, Any] = {"client_keys": [RIGHT[0]], "password": PASSWORD, "keyboard_interactive": code}
    async with (
        serving(echo, authenticator=Steps(*order), limits=ServerLimits(max_auth_tries=20)) as server,
        client(server, **options) as connection,
    ):
        assert not connection.is_closed()


async def test_a_step_that_fails() -> None:
    """Nothing is asked for twice without need, and the error says that one step was right."""
    asked = 0

    async def password() -> str:
        nonlocal asked
        asked += 1
        return "wrong"

    authenticator = Steps("publickey", "password")
    async with serving(echo, authenticator=authenticator) as server:
        with pytest.raises(AuthenticationFailed) as caught:
            await client(server, client_keys=[RIGHT[0]], password=password)
    assert caught.value.partial_success
    assert asked == 1
    assert authenticator.asked.count("password") == 1
    assert authenticator.asked.count("publickey") == 1


async def test_a_server_that_never_has_enough() -> None:
    async def code(name: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        return ["123"]

    async with fake_server(HalfServer("never")) as port:
        with pytest.raises(AuthenticationFailed) as caught:
            await sshtransport.connect(
                HOST, port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, client_keys=(), keyboard_interactive=code
            )
    assert caught.value.tried == ("keyboard-interactive",) * 8


async def test_the_servers_list_of_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bugs F 70, 75: EXT_INFO counts also when it comes in a read of its own, behind the keys."""
    extensions = ext_info({"server-sig-algs": b"ssh-ed25519,rsa-sha2-256"})
    monkeypatch.setattr(transport_module, "_SERVER_EXT_INFO", extensions)
    async with serving(echo, authenticator=Steps("publickey")) as server, Proxy(server.port, piece=1) as proxy:
        with pytest.raises(AuthenticationFailed) as caught:
            await sshtransport.connect(
                HOST, proxy.port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, client_keys=[private_key("ssh-rsa", 21)]
            )
    assert [name.split()[1] for name in caught.value.tried] == ["rsa-sha2-256"]


async def test_one_service_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bugs I 117: three keys and then a password, one SERVICE_REQUEST."""
    sent: list[int] = []
    send = SSHTransport.send

    def noting(self: SSHTransport, payload: bytes, /) -> None:
        if self.role == "client":
            sent.append(payload[0])
        send(self, payload)

    monkeypatch.setattr(SSHTransport, "send", noting)
    keys = [private_key("ssh-ed25519", number) for number in (21, 22, 23)]
    async with (
        serving(echo, authenticator=Steps("password")) as server,
        client(server, client_keys=keys, password=PASSWORD),
    ):
        pass
    assert sent == [5, 50, 50, 50, 50]


async def test_who_logs_in() -> None:
    """Without a name it is the local user's."""
    names: list[str] = []

    class Noting:
        def check_password(self, username: str, password: str, info: AuthInfo) -> bool:
            names.append(username)
            return True

    async with serving(echo, authenticator=Noting()) as server, client(server, username=None):
        pass
    assert names == [getpass.getuser()]


async def test_a_server_that_says_nothing_to_a_login() -> None:
    """Cancelled in the middle of a login, the socket is closed."""
    peer = HalfServer("service")
    async with fake_server(peer) as port:
        task = asyncio.create_task(
            sshtransport.connect(HOST, port, known_hosts=INSECURE_ACCEPT_ANY_HOST_KEY, client_keys=(), password="x")
        )
        await peer.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await peer.left()

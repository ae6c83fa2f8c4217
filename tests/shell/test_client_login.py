"""The client's login, where it hands over to the connection protocol."""

from __future__ import annotations

import pytest

from sshtransport import ServerProcess
from sshtransport.auth.server import ServerAuth
from sshtransport.wire import boolean, byte, string
from tests.support.servers import client, serving


async def test_a_request_in_the_same_read_as_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSH sends hostkeys-00 right behind its SUCCESS: both can arrive before the login's coroutine wakes up."""
    accept = ServerAuth.accept

    def accept_and_go_on(self: ServerAuth) -> None:
        accept(self)
        self._sink.send(byte(80) + string(b"hostkeys-00@openssh.com") + boolean(False))

    monkeypatch.setattr(ServerAuth, "accept", accept_and_go_on)

    async def handler(process: ServerProcess) -> int:
        return 3

    async with serving(handler) as server, client(server) as conn:
        assert (await conn.run("x")).exit_status == 3

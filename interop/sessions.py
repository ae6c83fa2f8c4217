"""Sessions over a transport that the caller made: to look into it, or to pin its randomness.

``sshtransport.connect`` and ``listen`` make theirs by themselves. What is here puts the same shell on a
given ``SSHTransport``. Any host key is accepted: loopback and throw-away keys only.
"""

from __future__ import annotations

from collections.abc import Sequence

from sshtransport import INSECURE_ACCEPT_ANY_HOST_KEY, ClientConnection, PrivateKey, SSHTransport
from sshtransport.asyncio.client import Deadline, open_link
from sshtransport.asyncio.login import Login
from sshtransport.asyncio.trust import HostTrust

__all__ = ("open_client",)


async def open_client(
    core: SSHTransport,
    host: str,
    port: int,
    *,
    username: str,
    client_keys: Sequence[PrivateKey] = (),
    password: str | None = None,
    timeout: float = 10.0,
) -> ClientConnection:
    """Connect and log in over ``core``. Whoever calls it closes the connection.

    Raises:
        SSHError: as ``sshtransport.connect``.
    """
    deadline = Deadline(timeout)
    trust = HostTrust(INSECURE_ACCEPT_ANY_HOST_KEY, None, host, port, None, core.config.rsa_min_bits)
    login = Login(
        username,
        core,
        deadline.ask,
        client_keys=client_keys,
        passphrase=None,
        password=password,
        keyboard_interactive=None,
    )
    connection: ClientConnection | None = None
    try:
        async with deadline.running(lambda: str(core.phase)):
            connection = await open_link(
                core,
                host,
                port,
                sock=None,
                local_addr=None,
                make_owner=lambda link: ClientConnection(link, trust, deadline),
            )
            await connection.handshake()
            await connection.log_in(login)
    except BaseException:
        if connection is not None:
            connection.close()
            connection.link.drop()
        raise
    return connection

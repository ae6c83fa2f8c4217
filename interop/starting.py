"""What every engine tells a peer: the arguments and the environment of its start scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from interop.model import Credentials, HarnessError, Peer, Role, Setting, Target

START_TIMEOUT = 30.0


def arguments(peer: Peer, role: Role, settings: Mapping[Setting, str]) -> list[str]:
    """The command of the role with what is set."""
    spec = peer.roles[role]
    words = list(spec.command)
    for setting, value in settings.items():
        if setting not in spec.settings:
            raise HarnessError(f"{peer.name} as {role} has no setting {setting}")
        words += [argument.replace("{value}", value) for argument in spec.settings[setting]]
    return words


def server_variables(credentials: Credentials, folder: str, host: str, port: int, username: str) -> dict[str, str]:
    """``folder``: where the script finds the credentials; ``host``, ``port``: where it is to listen."""
    return {
        "INTEROP_FOLDER": folder,
        "INTEROP_HOST": host,
        "INTEROP_PORT": str(port),
        "INTEROP_USER": username,
        "INTEROP_PASSWORD": credentials.password,
    }


def client_variables(
    credentials: Credentials, folder: str, host: str, username: str, command: str, target: Target
) -> dict[str, str]:
    """``folder``: where the script finds the credentials; ``host``: where our server is."""
    known_hosts = "known_hosts" if target.right_host_key else "known_hosts_wrong"
    return {
        **server_variables(credentials, folder, host, target.port, username),
        "INTEROP_LOGIN": target.login,
        "INTEROP_KNOWN_HOSTS": f"{folder}/{known_hosts}",
        "INTEROP_COMMAND": command,
    }


async def identification(host: str, port: int) -> str:
    """The line that a server greets with; empty when it does not."""
    try:
        async with asyncio.timeout(5.0):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return ""
    text = line.decode("ascii", "replace").strip()
    return text if text.startswith("SSH-") else ""

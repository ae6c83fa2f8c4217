"""The throw-away keys and the password of one run."""

from __future__ import annotations

import secrets
from pathlib import Path

from interop.model import Credentials
from sshtransport import PrivateKey

USER_KEYS = {"ed25519": "ssh-ed25519", "ecdsa": "ecdsa-sha2-nistp256", "rsa": "ssh-rsa"}

HOST_KEYS = {
    "ed25519": "ssh-ed25519",
    "ecdsa256": "ecdsa-sha2-nistp256",
    "ecdsa384": "ecdsa-sha2-nistp384",
    "ecdsa521": "ecdsa-sha2-nistp521",
    "rsa": "ssh-rsa",
}


def make_credentials(folder: Path) -> Credentials:
    """Write new keys into ``folder``, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a server in a container reads authorized_keys as the user who logs in
    authorized = [_write_key(folder / f"user_{name}", algorithm) for name, algorithm in USER_KEYS.items()]
    _write(folder / "authorized_keys", authorized)
    for kind, known_hosts in (("host", "known_hosts"), ("wrong", "known_hosts_wrong")):
        publics = [_write_key(folder / f"{kind}_{name}", algorithm) for name, algorithm in HOST_KEYS.items()]
        _write(folder / known_hosts, [f"* {public}" for public in publics])
    return Credentials(folder, secrets.token_hex(12))


def _write_key(path: Path, algorithm: str) -> str:
    """A new key at ``path`` and its public half beside it; returns that, without the comment."""
    key = PrivateKey.generate(algorithm, comment="interop")  # with none, paramiko refuses two of five ECDSA files
    path.touch(0o600)
    path.write_bytes(key.to_openssh())
    public = key.public_key.to_text()
    _write(path.with_name(path.name + ".pub"), [public])
    return " ".join(public.split()[:2])  # Dropbear would take a comment for a part of the key


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o644)  # whatever the umask says

"""No import climbs a floor (design section 1), and the checker that says so sees what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.layers import MAX_LINES, floor_of, module_name, read_sources, violations

REPOSITORY = Path(__file__).parent.parent


def test_the_package_keeps_its_floors() -> None:
    sources = read_sources(REPOSITORY)
    assert "sshtransport/wire.py" in sources
    assert violations(sources) == []


def test_names_and_floors() -> None:
    assert module_name("sshtransport/__init__.py") == "__init__"
    assert module_name("sshtransport/kex/__init__.py") == "kex"
    assert module_name("sshtransport/kex/dh.py") == "kex.dh"
    assert floor_of("ciphers.base") == 2
    assert floor_of("ciphers.aesgcm") == floor_of("ciphers") == 3
    assert floor_of("ciphers.speed") == 8
    assert floor_of("attic") is None


HOUSE = {
    "sshtransport/__init__.py": "from .asyncio.client import connect",
    "sshtransport/__main__.py": "import asyncio, argparse\nimport sshtransport",
    "sshtransport/errors.py": "import enum",
    "sshtransport/wire.py": "from .errors import ProtocolError\nfrom . import constants",
    "sshtransport/constants.py": "",
    "sshtransport/ciphers/__init__.py": "from . import base, aesgcm",
    "sshtransport/ciphers/base.py": "from ..wire import Buffer",
    "sshtransport/ciphers/aesgcm.py": "from cryptography import x509\nfrom .base import Sealer\nfrom .. import errors",
    "sshtransport/kex/__init__.py": "from .dh import DH\nfrom .base import KeyExchange",
    "sshtransport/kex/base.py": "from sshtransport.errors import ProtocolError",
    "sshtransport/kex/dh.py": "from .base import KeyExchange\nimport hashlib, os",
    "sshtransport/keys/__init__.py": "import bcrypt",
    "sshtransport/config.py": "from .kex import KEX_NAMES",
    "sshtransport/packets.py": "from .config import TransportConfig",
    "sshtransport/auth/__init__.py": "from ..keys import PublicKey",
    "sshtransport/connection/__init__.py": "",
    "sshtransport/asyncio/__init__.py": "import asyncio, socket, time\nfrom ..auth import x\nfrom .client import y",
    "sshtransport/asyncio/client.py": "import asyncio.sslproto\ndef f():\n    import uvloop",
    "sshtransport/contrib/sftp.py": "def sftp():\n    import asyncssh\nfrom sshtransport import connect",
}


def test_a_sound_house() -> None:
    assert violations(HOUSE) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("errors.py", "from .wire import text", ":1: errors (floor 0) imports wire (floor 1)"),
        ("errors.py", "import enum\nfrom . import wire", ":2: errors (floor 0) imports wire (floor 1)"),
        ("wire.py", "from . import __version__", "wire (floor 1) imports __init__ (floor 9)"),
        ("wire.py", "import sshtransport.kex.dh", "wire (floor 1) imports kex.dh (floor 3)"),
        ("wire.py", "def f():\n    from .config import TransportConfig", ":2: wire (floor 1) imports config (floor 4)"),
        ("wire.py", "if TYPE_CHECKING:\n    from .config import C", ":2: wire (floor 1) imports config (floor 4)"),
        ("ciphers/base.py", "from .aesgcm import X", "ciphers.base (floor 2) imports ciphers.aesgcm (floor 3)"),
        ("ciphers/base.py", "from . import aesgcm", "ciphers.base (floor 2) imports ciphers.aesgcm (floor 3)"),
        ("kex/dh.py", "from ..config import TransportConfig", "kex.dh (floor 3) imports config (floor 4)"),
        ("kex/dh.py", "from .. import packets", "kex.dh (floor 3) imports packets (floor 4)"),
        ("kex/dh.py", "from ..keys import PublicKey", "kex.dh imports keys, its neighbour on floor 3"),
        ("auth/__init__.py", "from ..connection import x", "auth imports connection, its neighbour on floor 7"),
        ("packets.py", "from .attic import x", "packets imports attic, which has no floor"),
        ("packets.py", "import asyncio", "packets imports asyncio"),
        ("packets.py", "from asyncio import Queue", "packets imports asyncio"),
        ("packets.py", "def f():\n    import asyncio.events", ":2: packets imports asyncio"),
        ("contrib/sftp.py", "import asyncio", "contrib.sftp imports asyncio"),
        ("__init__.py", "import asyncio", "__init__ imports asyncio"),
        ("auth/__init__.py", "from time import monotonic", "auth imports time, and is sans-IO"),
        ("packets.py", "import threading", "packets imports threading, and is sans-IO"),
        ("kex/dh.py", "import numpy", "kex.dh imports numpy when it is imported itself"),
        ("contrib/sftp.py", "import asyncssh.sftp", "contrib.sftp imports asyncssh when it is imported itself"),
        ("attic.py", "", "attic has no floor"),
        ("attic/box.py", "", "attic.box has no floor"),
        ("packets.py", "x = 1\n" * (MAX_LINES + 1), f"more than {MAX_LINES} lines"),
    ],
)
def test_a_broken_house(path: str, text: str, complaint: str) -> None:
    found = violations(HOUSE | {f"sshtransport/{path}": text})
    assert len(found) == 1
    assert found[0].startswith(f"sshtransport/{path}:")
    assert complaint in found[0]


def test_the_longest_module_allowed() -> None:
    assert violations(HOUSE | {"sshtransport/packets.py": "x = 1\n" * MAX_LINES}) == []

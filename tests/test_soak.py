"""Many handshakes in memory over all key exchange methods (known bugs C 34, 35, 38).

A wrong encoding of a secret shows once in 256 or 512 handshakes only: leading zero bytes, a set top bit.
"""

from __future__ import annotations

import pytest

from sshtransport.ciphers import DEFAULT_CIPHERS
from sshtransport.config import TransportConfig
from sshtransport.events import KeysChanged
from sshtransport.kex import KEX_NAMES
from tests.support.pair import Pair
from tests.support.puppet import events
from tests.support.scale import rounds

#: How many of a thousand; the finite-field groups cost ten times and more what the others do.
WEIGHTS = {
    "diffie-hellman-group14-sha256": 40,
    "diffie-hellman-group16-sha512": 8,
    "diffie-hellman-group18-sha512": 2,
}
QUICK = [name for name in KEX_NAMES if name not in WEIGHTS]
SHARE = (1000 - sum(WEIGHTS.values())) // len(QUICK) + 1


@pytest.mark.soak
@pytest.mark.parametrize("name", KEX_NAMES)
def test_handshakes(name: str) -> None:
    for number in range(rounds(WEIGHTS.get(name, SHARE))):
        config = TransportConfig(kex=[name], ciphers=[DEFAULT_CIPHERS[number % len(DEFAULT_CIPHERS)]])
        pair = Pair(config, config).pump()
        assert len(events(pair.client_items, KeysChanged)) == len(events(pair.server_items, KeysChanged)) == 1
        assert pair.client.session_id == pair.server.session_id
        pair.client.send(b"\x05\x00\x00\x00\x0cssh-userauth")
        assert pair.pump().server_items[-1] == b"\x05\x00\x00\x00\x0cssh-userauth"


def test_there_are_a_thousand() -> None:
    assert sum(WEIGHTS.get(name, SHARE) for name in KEX_NAMES) >= 1000
    assert set(WEIGHTS) <= set(KEX_NAMES)

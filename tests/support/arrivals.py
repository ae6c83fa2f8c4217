"""What may arrive, for all 256 message numbers: written from the protocol and the design, not from the code.

Sources: RFC 4250, section 4.1 (numbers), RFC 4252, section 6, RFC 4253, sections 7.1 and 11.4, RFC 8308,
section 2.4, the strict KEX draft, section 3.2; where they leave a choice, design section 4.
"""

from __future__ import annotations

from sshtransport.gates import Phase

__all__ = ("ARRIVALS", "FIRST_KEX", "FIRST_KEX_STRICT", "NORMAL", "REKEY", "ROLES", "table")

ROLES = ("client", "server")


def table(rows: str) -> str:
    """``1-4 A  why`` lines to one letter a number; each number must be said exactly once."""
    letters: dict[int, str] = {}
    for row in filter(None, map(str.strip, rows.splitlines())):
        numbers, letter, *_ = row.split()
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                assert number not in letters, f"{number} stands twice"
                letters[number] = letter
    assert sorted(letters) == list(range(256)), sorted(set(range(256)) - letters.keys())
    return "".join(letters[number] for number in range(256))


# A allowed, I ignored, U answered with UNIMPLEMENTED, F fatal.

FIRST_KEX = table("""
    0       F  not a message number
    1-4     A  without strict KEX they are legal at any time (known bugs D 51)
    5-7     F  no service, no extension before NEWKEYS (D 54)
    8-19    U  unknown numbers below 50 are answered (RFC 4253, 11.4)
    20,21   A  the transport judges when
    22-29   U
    30-49   A  the method's own
    50-255  F  no login, no channel before NEWKEYS (D 54, I 114)
""")
FIRST_KEX_STRICT = table("""
    0       F
    1       A  DISCONNECT is honoured everywhere
    2-19    F  whatever KEX does not need ends the connection (D 47)
    20,21   A
    22-29   F
    30-49   A
    50-255  F
""")
REKEY = table("""
    0       F
    1-4     A  IGNORE and DEBUG are legal again, strict or not (D 48)
    5-7     F  no SERVICE_REQUEST, and no EXT_INFO inside an exchange
    8-19    U
    20      F  a second KEXINIT in one exchange (C 46)
    21      A
    22-29   U
    30-49   A
    50-255  F  the peer's own KEXINIT shut its gate (E 57)
""")
SERVER_SERVICE = table("""
    0       F
    1-5     A  5 is what it waits for
    6       F  SERVICE_ACCEPT comes from servers
    7       A  right behind NEWKEYS; the transport looks at its place
    8-19    U
    20      A  a client's early rekey is served
    21      F  no exchange is running
    22-49   U  nor are a method's numbers known outside one
    50      U  no service was granted yet
    51-60   F  server's messages, and numbers of methods that cannot run yet
    61      U  unsolicited
    62-255  F  above all no channels (I 114)
""")
SERVER_AUTH = table("""
    0       F
    1-5     A  paramiko sends a SERVICE_REQUEST per attempt
    6       F
    7       U  too late: without effect
    8-19    U
    20      A
    21      F
    22-49   U
    50      A
    51-53   F  a client that says FAILURE, SUCCESS or BANNER (I 114: CVE-2018-10933)
    54-59   U  not assigned
    60      F  PK_OK and its likes come from servers
    61      U  nobody asked
    62-79   U  not assigned
    80-255  F
""")
SERVER_PROMPT = table("""
    0       F
    1-5     A
    6       F
    7       U
    8-19    U
    20      A
    21      F
    22-49   U
    50      A  a new request drops the question
    51-53   F
    54-59   U
    60      F
    61      A  the answer
    62-79   U
    80-255  F
""")
CLIENT_SERVICE = table("""
    0       F
    1-4     A
    5       F  SERVICE_REQUEST comes from clients
    6,7     A
    8-19    U
    20      A
    21      F
    22-49   U
    50-255  F  the server has to grant the service first (D 54: no SUCCESS out of nothing)
""")
CLIENT_AUTH = table("""
    0       F
    1-4     A
    5,6     U  granted already
    7       A  a server's second one, before SUCCESS (F 75)
    8-19    U
    20      A
    21      F
    22-49   U
    50      F  a server that asks for login
    51-53   A
    54-59   U
    60      A
    61-79   U
    80-255  F
""")
OPEN = table("""
    0       F
    1-4     A
    5-19    U  EXT_INFO out of place has no effect (E 67)
    20      A
    21      F
    22-49   U
    50-79   I  RFC 4252, 5.1: further login requests are ignored
    80-82   A
    83-89   U
    90-100  A
    101-191 U
    192,193 A  PING and PONG
    194-255 U
""")
NORMAL = {
    ("server", Phase.SERVICE): SERVER_SERVICE,
    ("server", Phase.AUTH): SERVER_AUTH,
    ("server", Phase.PROMPT): SERVER_PROMPT,
    ("client", Phase.SERVICE): CLIENT_SERVICE,
    ("client", Phase.AUTH): CLIENT_AUTH,
    ("server", Phase.OPEN): OPEN,
    ("client", Phase.OPEN): OPEN,
}
ARRIVALS = {
    **{(role, Phase.KEX, exchange, strict): FIRST_KEX_STRICT if strict else FIRST_KEX
       for role in ROLES for exchange in (True, False) for strict in (True, False)},
    **{(role, phase, True, strict): REKEY for role, phase in NORMAL for strict in (True, False)},
    **{(role, phase, False, strict): rows for (role, phase), rows in NORMAL.items() for strict in (True, False)},
}  # fmt: skip

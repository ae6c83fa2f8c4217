"""Message numbers, protocol names and size limits, each with its source."""

from __future__ import annotations

from typing import Final

# --- message numbers (RFC 4250, section 4.1) ---------------------------------------------------
MSG_DISCONNECT: Final = 1
MSG_IGNORE: Final = 2
MSG_UNIMPLEMENTED: Final = 3
MSG_DEBUG: Final = 4
MSG_SERVICE_REQUEST: Final = 5
MSG_SERVICE_ACCEPT: Final = 6
MSG_EXT_INFO: Final = 7  # RFC 8308, section 2.3
MSG_KEXINIT: Final = 20
MSG_NEWKEYS: Final = 21
MSG_KEX_INIT: Final = 30  # KEXDH_INIT, KEX_ECDH_INIT and the hybrids' C_INIT share it
MSG_KEX_REPLY: Final = 31
MSG_USERAUTH_REQUEST: Final = 50  # RFC 4252, section 6
MSG_USERAUTH_FAILURE: Final = 51
MSG_USERAUTH_SUCCESS: Final = 52
MSG_USERAUTH_BANNER: Final = 53
MSG_USERAUTH_PK_OK: Final = 60  # 60 and 61 belong to the active method
MSG_USERAUTH_PASSWD_CHANGEREQ: Final = 60
MSG_USERAUTH_INFO_REQUEST: Final = 60  # RFC 4256, section 5
MSG_USERAUTH_INFO_RESPONSE: Final = 61
MSG_GLOBAL_REQUEST: Final = 80  # RFC 4254, section 9
MSG_REQUEST_SUCCESS: Final = 81
MSG_REQUEST_FAILURE: Final = 82
MSG_CHANNEL_OPEN: Final = 90
MSG_CHANNEL_OPEN_CONFIRMATION: Final = 91
MSG_CHANNEL_OPEN_FAILURE: Final = 92
MSG_CHANNEL_WINDOW_ADJUST: Final = 93
MSG_CHANNEL_DATA: Final = 94
MSG_CHANNEL_EXTENDED_DATA: Final = 95
MSG_CHANNEL_EOF: Final = 96
MSG_CHANNEL_CLOSE: Final = 97
MSG_CHANNEL_REQUEST: Final = 98
MSG_CHANNEL_SUCCESS: Final = 99
MSG_CHANNEL_FAILURE: Final = 100
MSG_PING: Final = 192  # OpenSSH PROTOCOL, section 1.8
MSG_PONG: Final = 193

EXTENDED_DATA_STDERR: Final = 1  # RFC 4254, section 5.2

# --- names --------------------------------------------------------------------------------------
SERVICE_USERAUTH: Final = b"ssh-userauth"
SERVICE_CONNECTION: Final = b"ssh-connection"

EXT_INFO_CLIENT: Final = "ext-info-c"  # RFC 8308, section 2.1
EXT_INFO_SERVER: Final = "ext-info-s"
STRICT_KEX_CLIENT: Final = "kex-strict-c-v00@openssh.com"
STRICT_KEX_SERVER: Final = "kex-strict-s-v00@openssh.com"

EXT_SERVER_SIG_ALGS: Final = "server-sig-algs"  # RFC 8308, section 3.1
EXT_PING: Final = "ping@openssh.com"

#: Markers that live in the KEX list and are never a key exchange, of either role and spelling.
PSEUDO_KEX_NAMES: Final = frozenset(
    {
        EXT_INFO_CLIENT,
        EXT_INFO_SERVER,
        STRICT_KEX_CLIENT,
        STRICT_KEX_SERVER,
        "kex-strict-c",
        "kex-strict-s",
        "kexguess2@matt.ucc.asn.au",
    }
)

# --- identification (RFC 4253, section 4.2; design section 5) -------------------------------------
IDENT_MAX_SIZE: Final = 255  # bytes of the SSH- line with CR LF
IDENT_MAX_LINES: Final = 1024  # lines a client skips before it
IDENT_MAX_LINE_SIZE: Final = 8192  # bytes of each of them
IDENT_MAX_TOTAL: Final = 256 * 1024  # bytes of all of them

# --- packets (RFC 4253, section 6) ----------------------------------------------------------------
PACKET_LENGTH_MIN: Final = 5
PACKET_LENGTH_MAX_EARLY: Final = 35_000  # until the first NEWKEYS; a server: until USERAUTH_SUCCESS
PACKET_LENGTH_MAX: Final = 256 * 1024  # afterwards, as OpenSSH
PACKET_SEND_MAX: Final = 35_000  # whole frames we send (RFC 4253, section 6.1; Dropbear reads no more)
PADDING_MIN: Final = 4
PADDING_MAX: Final = 255
#: Largest payload that fits such a frame under any cipher: less length fields, tag and padding.
PAYLOAD_SEND_MAX: Final = PACKET_SEND_MAX - 4 - 1 - 64 - PADDING_MAX
SEQUENCE_MODULUS: Final = 2**32

# --- transport -------------------------------------------------------------------------------------
PAUSED_INPUT_MAX: Final = 64 * 1024  # kept while a host key waits for its verdict
HELD_OUTPUT_MAX: Final = 64 * 1024  # replies and control messages held during a rekey
REPLIES_MAX_EARLY: Final = 8 * 1024  # replies owed before login
REPLY_COST: Final = 64  # memory of a small reply beside its bytes
READ_MAX_EARLY: Final = 8 * 1024  # bytes a server reads at once before login
EXT_INFO_ROOM: Final = 4096  # bytes of a client's extensions that a server keeps
OUTPUT_HIGH_WATER: Final = 256 * 1024  # sealed bytes not yet taken, beyond which channel data waits
EXT_INFO_MAX_ENTRIES: Final = 1024
ALGORITHM_NAME_MAX: Final = 64  # RFC 4251, section 6
OFFER_SHOWN_MAX: Final = 100  # names of the peer's offer that an error keeps
NAME_LIST_REPLY_BYTES: Final = 32_768

# --- authentication (RFC 4252) ---------------------------------------------------------------------
AUTH_PROMPTS_MAX: Final = 100
AUTH_BANNERS_MAX: Final = 64  # banners a client reports; their text counts against the next line
AUTH_BANNER_TOTAL_MAX: Final = 256 * 1024
USER_NAME_MAX: Final = 1024  # bytes
AUTH_SECRET_MAX: Final = 4096  # bytes of one password or answer that a server takes
AUTH_SUBMETHODS_MAX: Final = 1024  # bytes of the hint in a keyboard-interactive request
AUTH_ROUNDS_MAX: Final = 100  # INFO_REQUESTs a client answers in one attempt
AUTH_REQUESTS_MAX: Final = 1024  # messages a server takes before it must have said SUCCESS
AUTH_QUEUED_MAX: Final = 16  # requests that wait behind one whose verdict is pending
AUTH_QUEUED_BYTES_MAX: Final = PACKET_LENGTH_MAX_EARLY  # and their bytes: any single one fits

# --- connection (RFC 4254) -------------------------------------------------------------------------
WINDOW_SIZE: Final = 2**21
WINDOW_MAX: Final = 2**32 - 1
MAX_PACKET_SIZE: Final = 32_768  # data bytes of one message, ours and the most we send
MAX_PACKET_SIZE_LIMIT: Final = 261_632  # largest own maximum packet that can be set
CHANNEL_HIGH_WATER: Final = 64 * 1024  # bytes queued in a channel before drain() waits
CHANNEL_LOW_WATER: Final = 16 * 1024  # ... and at which it goes on
WINDOW_FLOOR: Final = 64 * 1024  # a channel gets that much window even when MAX_BUFFERED is used up
CHANNELS_MAX: Final = 128
PENDING_OPENS_MAX: Final = 32
REMOTE_FORWARDS_MAX: Final = 16
MAX_BUFFERED: Final = 32 * 2**20  # received bytes over all channels of a server's connection
ENV_MAX: Final = 128  # environment variables a session accepts
ENV_SIZE_MAX: Final = 128 * 1024  # bytes of their names and values together
PENDING_REPLIES_MAX: Final = 256  # requests of the peer that may wait for our answer

# --- keys ------------------------------------------------------------------------------------------
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 16_384

"""SSH for asyncio: a fast, strict sans-IO transport with client, server and packet streams.

See the README for a first look; every public name is listed in ``__all__``.
"""

from __future__ import annotations

from .asyncio.base import ConnectionInfo
from .asyncio.client import ClientConnection, connect
from .asyncio.connection import SSHConnection
from .asyncio.limits import ServerLimits
from .asyncio.opening import Opening
from .asyncio.packet_stream import PacketServer, PacketStream, open_packet_stream, start_packet_server
from .asyncio.process import ClientProcess, CompletedProcess
from .asyncio.server import Server, listen
from .asyncio.server_connection import ServerConnection
from .asyncio.server_process import ServerProcess
from .asyncio.streams import SSHReader, SSHWriter
from .asyncio.trust import INSECURE_ACCEPT_ANY_HOST_KEY, accept_new
from .asyncio.tunnel import LocalForward
from .auth import PARTIAL_SUCCESS, AuthInfo, AuthorizedKeys, Grant, Passwords
from .ciphers import (
    MAC,
    CipherSpec,
    CipherStatus,
    KnownAnswer,
    MACSpec,
    Opener,
    Sealer,
    cipher_names,
    cipher_status,
    get_cipher,
    get_mac,
    mac_names,
    register_cipher,
    register_mac,
)
from .ciphers.speed import ciphers_by_speed
from .config import TransportConfig
from .connection import PtyRequest
from .errors import (
    AuthenticationFailed,
    ChannelOpenError,
    ConnectionLost,
    DisconnectReason,
    HandshakeTimeout,
    HostKeyError,
    IntegrityError,
    KeyFileError,
    LocalError,
    NegotiationError,
    OpenFailureReason,
    PeerDisconnected,
    ProcessError,
    ProtocolError,
    RemoteError,
    SignatureError,
    SSHError,
)
from .events import (
    DebugReceived,
    Disconnected,
    Event,
    ExtInfoReceived,
    HostKeyOffered,
    IdentificationReceived,
    KeysChanged,
    UnimplementedReceived,
)
from .gates import Phase
from .keys import ForwardRule, KnownHosts, PrivateKey, PublicKey
from .negotiation import Algorithms
from .transport import SSHTransport, TransportState

__version__ = "0.1.0"

__all__ = (
    "Algorithms",
    "AuthInfo",
    "AuthenticationFailed",
    "AuthorizedKeys",
    "ChannelOpenError",
    "CipherSpec",
    "CipherStatus",
    "ClientConnection",
    "ClientProcess",
    "CompletedProcess",
    "ConnectionInfo",
    "ConnectionLost",
    "DebugReceived",
    "DisconnectReason",
    "Disconnected",
    "Event",
    "ExtInfoReceived",
    "ForwardRule",
    "Grant",
    "HandshakeTimeout",
    "HostKeyError",
    "HostKeyOffered",
    "INSECURE_ACCEPT_ANY_HOST_KEY",
    "IdentificationReceived",
    "IntegrityError",
    "KeyFileError",
    "KeysChanged",
    "KnownAnswer",
    "KnownHosts",
    "LocalError",
    "LocalForward",
    "MAC",
    "MACSpec",
    "NegotiationError",
    "OpenFailureReason",
    "Opener",
    "Opening",
    "PARTIAL_SUCCESS",
    "PacketServer",
    "PacketStream",
    "Passwords",
    "PeerDisconnected",
    "Phase",
    "PrivateKey",
    "ProcessError",
    "ProtocolError",
    "PtyRequest",
    "PublicKey",
    "RemoteError",
    "SSHConnection",
    "SSHError",
    "SSHReader",
    "SSHTransport",
    "SSHWriter",
    "Sealer",
    "Server",
    "ServerConnection",
    "ServerLimits",
    "ServerProcess",
    "SignatureError",
    "TransportConfig",
    "TransportState",
    "UnimplementedReceived",
    "__version__",
    "accept_new",
    "cipher_names",
    "cipher_status",
    "ciphers_by_speed",
    "connect",
    "get_cipher",
    "get_mac",
    "listen",
    "mac_names",
    "open_packet_stream",
    "register_cipher",
    "register_mac",
    "start_packet_server",
)

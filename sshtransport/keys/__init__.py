"""Keys: public-key algorithms, private-key files and the files that say which keys are trusted."""

from .authorized_keys import AuthorizedKey, AuthorizedKeyList, ForwardRule, FromList, KeyOptions
from .container import BCRYPT_ROUNDS_MAX, KEY_FILE_CIPHERS
from .known_hosts import KNOWN_HOSTS_FILES, HostKeyEntry, HostKeyLookup, HostKeyVerdict, KnownHosts
from .private import KEY_FILE_MAX, PrivateKey
from .public import HOST_KEY_ALGORITHMS, PublicKey, key_type_of
from .trust_files import SkippedLine

__all__ = (
    "AuthorizedKey",
    "AuthorizedKeyList",
    "BCRYPT_ROUNDS_MAX",
    "ForwardRule",
    "FromList",
    "HOST_KEY_ALGORITHMS",
    "HostKeyEntry",
    "HostKeyLookup",
    "HostKeyVerdict",
    "KEY_FILE_CIPHERS",
    "KEY_FILE_MAX",
    "KNOWN_HOSTS_FILES",
    "KeyOptions",
    "KnownHosts",
    "PrivateKey",
    "PublicKey",
    "SkippedLine",
    "key_type_of",
)

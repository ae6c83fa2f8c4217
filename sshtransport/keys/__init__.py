"""Keys: public-key algorithms, private-key files and the files that say which keys are trusted."""

from .container import BCRYPT_ROUNDS_MAX, KEY_FILE_CIPHERS
from .private import KEY_FILE_MAX, PrivateKey
from .public import HOST_KEY_ALGORITHMS, PublicKey, key_type_of

__all__ = (
    "BCRYPT_ROUNDS_MAX",
    "HOST_KEY_ALGORITHMS",
    "KEY_FILE_CIPHERS",
    "KEY_FILE_MAX",
    "PrivateKey",
    "PublicKey",
    "key_type_of",
)

"""Which ciphers are fast here: AES needs instructions that not every processor has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from ..constants import MAX_PACKET_SIZE
from . import DEFAULT_CIPHERS, DEFAULT_MACS
from .base import CipherSpec, Opener, Sealer, get_cipher, get_mac, spec_status

__all__ = ("ciphers_by_speed",)

_ROUNDS = 10


def ciphers_by_speed(
    names: Sequence[str] = DEFAULT_CIPHERS, *, clock: Callable[[], float] = perf_counter
) -> tuple[str, ...]:
    """The ciphers that work on this machine, the fastest first, as ``TransportConfig(ciphers=...)`` takes them.

    Each seals and opens ten packets of 32 KiB; the least time counts, so that what else the machine
    does in between matters little. Ciphers that need a MAC have the preferred one,
    ``hmac-sha2-256-etm@openssh.com``. Two that are about equally fast may change places from call
    to call. It takes 3 to 10 ms in all, and the loop stands still for that time: call it once, at
    the start. In a connection the client's order decides (RFC 4253, section 7.1).

    Args:
        names: registered ciphers; the defaults where it is not said.
        clock: gives seconds.

    Raises:
        LocalError: no cipher has that name.
    """
    runners = {spec.name: _Runner(spec) for spec in map(get_cipher, names) if spec_status(spec)}
    least = dict.fromkeys(runners, float("inf"))
    for _ in range(_ROUNDS):  # in turns: a slow moment meets all alike
        for name, runner in runners.items():
            start = clock()
            runner.turn()
            least[name] = min(least[name], clock() - start)
    return tuple(sorted(runners, key=least.__getitem__))


class _Runner:
    """Both ends of a cipher under keys that protect nothing."""

    def __init__(self, spec: CipherSpec) -> None:
        key, iv = bytes(range(spec.key_size)), bytes(spec.iv_size)
        mac = get_mac(DEFAULT_MACS[0]) if spec.needs_mac else None
        self._sealer: Sealer = spec.make_sealer(key, iv, mac.make(bytes(mac.key_size)) if mac else None)
        self._opener: Opener = spec.make_opener(key, iv, mac.make(bytes(mac.key_size)) if mac else None)
        size = MAX_PACKET_SIZE - (4 if self._sealer.length_aligned else 0)
        self._packet = size.to_bytes(4, "big"), bytes(size)
        self._sequence = 0

    def turn(self) -> None:
        """Seal a packet and open it again."""
        head, body = self._packet
        opener, sequence = self._opener, self._sequence
        self._sequence += 1
        frame = memoryview(self._sealer.seal(sequence, head, body))
        opener.length(sequence, frame[: opener.head_size])
        opener.open(sequence, frame)

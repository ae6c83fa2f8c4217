"""ciphers_by_speed with a clock of the test's: it goes on by what each cipher is said to cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import sshtransport
from sshtransport import LocalError, TransportConfig
from sshtransport.ciphers import DEFAULT_CIPHERS, CipherSpec, base, get_cipher, speed
from sshtransport.ciphers.speed import _Runner, ciphers_by_speed

CHACHA = "chacha20-poly1305@openssh.com"


class Costs:
    """A clock that goes on while a cipher works, by seconds that the test says, turn by turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, costs: dict[str, Iterator[float]]) -> None:
        self.now = 0.0
        self.turns: list[str] = []

        class Runner(_Runner):
            def __init__(runner, spec: CipherSpec) -> None:  # noqa: N805
                super().__init__(spec)
                runner.name = spec.name

            def turn(runner) -> None:  # noqa: N805
                super().turn()
                self.turns.append(runner.name)
                self.now += next(costs[runner.name])

        monkeypatch.setattr(speed, "_Runner", Runner)

    def __call__(self) -> float:
        return self.now


def steady(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def test_the_fastest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order = (CHACHA, "aes128-ctr", "aes256-ctr", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
    clock = Costs(monkeypatch, {name: steady(seconds) for seconds, name in enumerate(order, 1)})
    assert ciphers_by_speed(clock=clock) == order
    assert clock.turns[:5] == list(DEFAULT_CIPHERS)  # in turns
    assert clock.turns == list(DEFAULT_CIPHERS) * 10


def test_one_good_moment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {CHACHA: iter([9.0] * 6 + [1.0] + [9.0] * 3), "aes128-ctr": steady(2.0)}
    assert ciphers_by_speed(["aes128-ctr", CHACHA], clock=Costs(monkeypatch, costs)) == (CHACHA, "aes128-ctr")


def test_what_is_equal_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {name: steady(1.0) for name in DEFAULT_CIPHERS}
    for names in (DEFAULT_CIPHERS, DEFAULT_CIPHERS[::-1]):
        assert ciphers_by_speed(names, clock=Costs(monkeypatch, costs)) == names


def test_really_measured() -> None:
    names = sshtransport.ciphers_by_speed()
    assert sorted(names) == sorted(DEFAULT_CIPHERS)
    assert tuple(TransportConfig(ciphers=names).offered_ciphers()) == names


def test_a_cipher_that_does_not_work_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> base.Sealer:
        raise NotImplementedError

    monkeypatch.setattr(base, "_registry", replace(base._registry, ciphers=dict(base._registry.ciphers)))
    base.register_cipher(replace(get_cipher(CHACHA), name="broken@example.org", make_sealer=broken))
    assert ciphers_by_speed(["broken@example.org", CHACHA]) == (CHACHA,)
    assert ciphers_by_speed(["broken@example.org"]) == ()


def test_unknown_names_and_none() -> None:
    with pytest.raises(LocalError, match="unknown cipher 'rot13'"):
        ciphers_by_speed([CHACHA, "rot13"])
    assert ciphers_by_speed([]) == ()

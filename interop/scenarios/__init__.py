"""What is tried with every peer. A scenario is one small function, and one line of this table."""

from __future__ import annotations

from interop.model import Ability, Role

from . import by_role, common, recording, tampering
from .sides import Check, ClientPeer, ServerPeer, Side
from .table import (
    Scenario,
    Weight,
    all_kex,
    alone,
    hybrid,
    its_rekey,
    logins,
    matrix,
    only_this,
    plan,
    variants,
    variants_over_ciphers,
    who_rekeys,
)

__all__ = ("SCENARIOS", "Check", "ClientPeer", "Scenario", "ServerPeer", "Side", "Weight", "plan")

SERVER, CLIENT = (Role.SERVER,), (Role.CLIENT,)
BYTES_BOTH_WAYS = frozenset({Ability.STDIN})

SCENARIOS: tuple[Scenario, ...] = (
    # Those that wait go first: they cost nothing, and nobody waits for them in the end.
    Scenario(
        "slow-reader",
        common.slow_reader,
        variants("down", "up"),
        needs=BYTES_BOTH_WAYS,
        weight=Weight.IDLE,
        deadline=180.0,
    ),
    Scenario("network", common.network, variants(*common.NETWORKS), weight=Weight.IDLE, deadline=120.0),
    Scenario("handshake", common.handshake),
    Scenario("empty-macs", common.empty_macs, needs=frozenset({Ability.EMPTY_MACS})),
    Scenario("login", common.login, logins),
    Scenario("command", common.command),
    Scenario("commands", common.commands, deadline=240.0),
    Scenario("channels", by_role.channels, roles=SERVER, needs=frozenset({Ability.CHANNELS})),
    Scenario(
        "half-close",
        common.half_close,
        variants("input", "output"),
        needs=frozenset({Ability.HALF_CLOSE}),
        deadline=30.0,
    ),
    Scenario("kill", by_role.kill_server, variants("ours", "theirs"), SERVER),
    Scenario("kill", by_role.kill_client, variants("ours", "theirs"), CLIENT),
    Scenario("wrong-host-key", by_role.wrong_host_key_of_server, roles=SERVER),
    Scenario("wrong-host-key", by_role.wrong_host_key_for_client, roles=CLIENT, needs=frozenset({Ability.KNOWN_HOSTS})),
    Scenario("strict-kex", common.strict_kex, variants("off", "auto")),
    Scenario("strict-kex-required", by_role.require_strict_of_server, roles=SERVER),
    Scenario("strict-kex-required", by_role.require_strict_of_client, roles=CLIENT),
    Scenario("alone", common.alone, alone, settings=only_this),
    Scenario(
        "transfer",
        common.transfer,
        variants_over_ciphers("down", "up", "both"),
        needs=BYTES_BOTH_WAYS,
        weight=Weight.HEAVY,
        deadline=180.0,
    ),
    Scenario(
        "rekey",
        common.rekey,
        who_rekeys,
        needs=BYTES_BOTH_WAYS,
        weight=Weight.HEAVY,
        deadline=120.0,
        settings=its_rekey(common.REKEY_BYTES),
    ),
    Scenario("kex-storm", by_role.kex_storm, hybrid(1), SERVER, weight=Weight.HEAVY, deadline=300.0),
    Scenario("kex-storm", by_role.kex_storm, hybrid(50), CLIENT, weight=Weight.HEAVY, deadline=300.0),
    Scenario("tamper", tampering.tamper_server, tampering.tampered, SERVER, deadline=600.0),
    Scenario("tamper", tampering.tamper_client, tampering.tampered_in_turns, CLIENT, deadline=600.0),
    Scenario(
        "transcript",
        recording.record_with_server,
        recording.recorded,
        SERVER,
        settings=recording.what_it_needs,
        on_demand=True,
    ),
    Scenario(
        "transcript",
        recording.record_with_client,
        recording.recorded,
        CLIENT,
        needs=BYTES_BOTH_WAYS,
        settings=recording.what_it_needs,
        on_demand=True,
    ),
    Scenario("matrix", common.matrix, matrix, settings=all_kex),
)

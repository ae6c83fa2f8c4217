"""The server machine against messages that no client should send."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.auth import (
    AnswersReceived,
    AuthEvent,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    ServerAuth,
)
from sshtransport.errors import DisconnectReason, ProtocolError
from tests.support.auth import (
    ALL_METHODS,
    KEYBOARD_INTERACTIVE,
    SERVICE_REQUEST,
    SUCCESS,
    failure,
    info_response,
    key,
    make_server,
    password,
    query,
    request,
    s,
    signed,
)

ED25519 = "ssh-ed25519"
FAILURE = failure("publickey,keyboard-interactive,password")
PARTIAL = failure("publickey,keyboard-interactive,password", True)


class TestHostile:
    REQUESTS: tuple[bytes, ...] = (
        SERVICE_REQUEST,
        request("none"),
        query(key(ED25519), ED25519),
        signed(key(ED25519), ED25519),
        password("secret"),
        request("password", b"\1" + s("old") + s("new")),
        request("keyboard-interactive", s("en") + s("pam")),
    )

    @pytest.mark.parametrize("methods", [ALL_METHODS, frozenset[str]()])
    @pytest.mark.parametrize("payload", REQUESTS)
    def test_truncated_and_trailing(self, payload: bytes, methods: frozenset[str]) -> None:
        """Known bugs, I 122: malformed is malformed, whoever asks and whatever is allowed."""
        for bad in (*(payload[:size] for size in range(len(payload))), payload + b"\0"):
            server, sink = make_server(methods)
            with pytest.raises(ProtocolError) as caught:
                server.receive(bad)
            assert caught.value.reason is DisconnectReason.PROTOCOL_ERROR
            assert sink.sent == []

    def test_truncated_and_trailing_answers(self) -> None:
        payload = info_response("ab", "c")
        for bad in (*(payload[:size] for size in range(1, len(payload))), payload + b"\0"):
            server, sink = make_server()
            server.receive(KEYBOARD_INTERACTIVE)
            server.ask("", "", [("a", False), ("b", False)])
            sink.take()
            with pytest.raises(ProtocolError):
                server.receive(bad)
            assert sink.sent == []

    @pytest.mark.parametrize("value", [0x10000, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF])
    def test_absurd_lengths(self, value: int) -> None:
        for payload in self.REQUESTS:
            for position in range(1, len(payload) - 3):
                bad = payload[:position] + struct.pack(">I", value) + payload[position + 4 :]
                server, _ = make_server()
                try:
                    event = server.receive(bad)
                except ProtocolError:
                    continue
                assert not isinstance(event, KeyPresented)

    @given(
        payloads=st.lists(
            st.one_of(
                st.binary(max_size=80),
                st.builds(
                    lambda number, fields, rest: bytes([number]) + b"".join(map(s, fields)) + rest,
                    st.sampled_from([5, 50, 61]),
                    st.lists(st.binary(max_size=9), max_size=5),
                    st.binary(max_size=9),
                ),
                st.builds(
                    request,
                    st.sampled_from(["none", "publickey", "password", "keyboard-interactive", "x"]),
                    st.one_of(
                        st.binary(max_size=40),
                        st.builds(
                            lambda flag, fields: flag + b"".join(map(s, fields)),
                            st.sampled_from([b"", b"\0", b"\1"]),
                            st.lists(
                                st.sampled_from([b"ssh-ed25519", b"rsa-sha2-512", b"", b"x", b"\xff"]), max_size=4
                            ),
                        ),
                    ),
                ),
                st.sampled_from(REQUESTS),
                st.builds(lambda answers: info_response(*answers), st.lists(st.sampled_from(["", "a"]), max_size=3)),
            ),
            max_size=12,
        ),
        verdicts=st.lists(st.sampled_from(["refuse", "partial", "key_ok", "ask", "wait"]), min_size=12, max_size=12),
    )
    def test_random(self, payloads: list[bytes], verdicts: list[str]) -> None:
        """Whatever comes: ProtocolError or an event; without accept() never SUCCESS."""
        server, sink = make_server(started=False)
        try:
            for payload, verdict in zip(payloads, verdicts, strict=False):
                self.drive(server, server.receive(payload), verdict)
        except ProtocolError:
            pass
        assert not server.authenticated
        assert SUCCESS not in sink.sent

    @staticmethod
    def drive(server: ServerAuth, event: AuthEvent | None, verdict: str) -> None:
        while event is not None and verdict != "wait":
            if isinstance(event, KeyboardInteractiveAborted):
                pass
            elif verdict == "key_ok" and isinstance(event, KeyQueried):
                server.key_ok()
            elif verdict == "ask" and isinstance(event, KeyboardInteractiveRequested | AnswersReceived):
                server.ask("", "", [("?", False)])
            elif verdict == "partial" and not isinstance(event, KeyQueried):
                server.partial()
            else:
                server.refuse()
            event = server.next_event()

    def test_same_bytes_for_every_user(self) -> None:
        """Known bugs, I 122: the machine has no way to know who exists."""
        answers = []
        for user in ("known", "unknown"):
            server, sink = make_server(max_tries=20)
            payloads = (
                request("none", user=user),
                query(key(ED25519), ED25519, user),
                signed(key(ED25519), ED25519, user),
                signed(key(ED25519), ED25519, user, session_id=b"wrong"),
                password("x", user),
                request("password", b"\1" + s("a") + s("b"), user),
                request("nothing", user=user),
            )
            for payload in payloads:
                if server.receive(payload) is not None:
                    server.refuse()
            answers.append(sink.take())
        assert answers[0] == answers[1]
        assert answers[0] == [FAILURE] * 7

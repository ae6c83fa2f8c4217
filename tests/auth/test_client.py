"""The client machine against messages written by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.auth import (
    AuthRefused,
    AuthSucceeded,
    BannerReceived,
    ClientAuth,
    KeyAccepted,
    PasswordChangeRequested,
    PromptsReceived,
    ServiceAccepted,
    choose_algorithms,
)
from sshtransport.constants import (
    AUTH_BANNER_TOTAL_MAX,
    AUTH_BANNERS_MAX,
    AUTH_PROMPTS_MAX,
    AUTH_ROUNDS_MAX,
    USER_NAME_MAX,
)
from sshtransport.errors import LocalError, ProtocolError
from tests.support.auth import (
    KEYBOARD_INTERACTIVE,
    SERVICE_ACCEPT,
    SERVICE_REQUEST,
    SESSION_ID,
    SUCCESS,
    ListSink,
    failure,
    info_request,
    info_response,
    key,
    make_client,
    password,
    query,
    request,
    s,
)

ED25519 = "ssh-ed25519"


def pk_ok(algorithm: str, blob: bytes) -> bytes:
    return b"\x3c" + s(algorithm) + s(blob)


def banner(text: str | bytes) -> bytes:
    return b"\x35" + s(text) + s("")


ACTIONS: dict[str, Callable[[ClientAuth], None]] = {
    "none": lambda client: client.try_none(),
    "query": lambda client: client.query_key(key(ED25519).public_key, ED25519),
    "key": lambda client: client.try_key(key(ED25519), ED25519),
    "password": lambda client: client.try_password("secret"),
    "change": lambda client: client.change_password("secret", "new secret"),
    "keyboard": lambda client: client.try_keyboard_interactive(),
}


class TestRequests:
    def test_service_is_requested_once(self) -> None:
        client, sink = make_client(started=False)
        client.start()
        assert sink.one() == SERVICE_REQUEST
        with pytest.raises(LocalError):
            client.start()
        assert client.receive(SERVICE_ACCEPT) == ServiceAccepted()
        assert sink.sent == []

    def test_one_service_request_for_many_attempts(self) -> None:
        """Known bugs, I 117."""
        client, sink = make_client(started=False)
        client.start()
        client.receive(SERVICE_ACCEPT)
        for action in ("key", "key", "key", "password"):
            ACTIONS[action](client)
            client.receive(failure("publickey,password"))
        assert [payload[0] for payload in sink.sent] == [5, 50, 50, 50, 50]

    @pytest.mark.parametrize("action", ACTIONS)
    def test_nothing_before_start(self, action: str) -> None:
        client, sink = make_client(started=False)
        with pytest.raises(LocalError):
            ACTIONS[action](client)
        assert sink.sent == []

    def test_a_request_may_follow_the_service_request_at_once(self) -> None:
        client, sink = make_client(started=False)
        client.start()
        client.try_none()
        assert sink.take() == [SERVICE_REQUEST, request("none")]
        client.receive(SERVICE_ACCEPT)
        assert client.receive(failure("publickey")) == AuthRefused(("publickey",), False)

    @pytest.mark.parametrize(
        ("action", "expected"),
        [
            ("none", request("none")),
            ("query", query(key(ED25519), ED25519)),
            ("password", password("secret")),
            ("change", request("password", b"\1" + s("secret") + s("new secret"))),
            ("keyboard", KEYBOARD_INTERACTIVE),
        ],
    )
    def test_bytes(self, action: str, expected: bytes) -> None:
        client, sink = make_client()
        ACTIONS[action](client)
        assert sink.one() == expected

    @pytest.mark.parametrize(
        "algorithm", [ED25519, "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "rsa-sha2-512", "rsa-sha2-256"]
    )
    def test_signature_covers_session_and_request(self, algorithm: str) -> None:
        private = key("ssh-rsa" if algorithm.startswith("rsa") else algorithm)
        client, sink = make_client()
        client.try_key(private, algorithm)
        payload = sink.one()
        unsigned = request("publickey", b"\1" + s(algorithm) + s(private.public_key.blob))
        assert payload.startswith(unsigned)
        (size,) = struct.unpack_from(">I", payload, len(unsigned))
        signature = payload[len(unsigned) + 4 :]
        assert size == len(signature)
        private.public_key.verify(algorithm, s(SESSION_ID) + unsigned, signature)

    def test_signature_from_elsewhere(self) -> None:
        private = key(ED25519)
        client, sink = make_client()
        signature = private.sign(ED25519, client.data_to_sign(private.public_key, ED25519))
        client.try_signature(private.public_key, ED25519, signature)
        other, other_sink = make_client()
        other.try_key(private, ED25519)
        assert sink.one() == other_sink.one()

    @pytest.mark.parametrize(
        "signature", [b"", s("ssh-rsa") + s(b"x" * 256), s("rsa-sha2-256") + s(b"x"), b"\0\0\0\xff"]
    )
    def test_signature_of_another_algorithm(self, signature: bytes) -> None:
        """Known bugs, F 71: an agent that ignores the SHA-2 flag."""
        client, sink = make_client()
        with pytest.raises(LocalError, match="signature"):
            client.try_signature(key("ssh-rsa").public_key, "rsa-sha2-512", signature)
        assert sink.sent == []
        assert not client.busy

    @pytest.mark.parametrize("algorithm", ["ssh-rsa", "rsa-sha2-512", "ecdsa-sha2-nistp256", "", "ssh-ed25519\n"])
    def test_algorithm_must_fit_the_key(self, algorithm: str) -> None:
        client, sink = make_client()
        for action in (client.query_key, client.data_to_sign):
            with pytest.raises(LocalError):
                action(key(ED25519).public_key, algorithm)
        with pytest.raises(LocalError):
            client.try_key(key(ED25519), algorithm)
        assert sink.sent == []

    @pytest.mark.parametrize("second", ACTIONS)
    @pytest.mark.parametrize("first", ACTIONS)
    def test_one_request_at_a_time(self, first: str, second: str) -> None:
        client, sink = make_client()
        ACTIONS[first](client)
        assert client.busy
        with pytest.raises(LocalError):
            ACTIONS[second](client)
        assert len(sink.take()) == 1
        client.receive(failure("publickey"))
        assert not client.busy
        ACTIONS[second](client)
        assert len(sink.take()) == 1

    @pytest.mark.parametrize("action", ["password", "change", "keyboard"])
    def test_no_password_on_an_insecure_line(self, action: str) -> None:
        """Known bugs, B 17."""
        client, sink = make_client(secure=False)
        with pytest.raises(LocalError):
            ACTIONS[action](client)
        assert sink.sent == []
        ACTIONS["key"](client)
        assert len(sink.sent) == 1

    @pytest.mark.parametrize("action", ACTIONS)
    def test_nothing_after_success(self, action: str) -> None:
        client, sink = make_client()
        client.try_none()
        sink.take()
        client.receive(SUCCESS)
        assert client.authenticated
        with pytest.raises(LocalError):
            ACTIONS[action](client)
        assert sink.sent == []

    def test_user_name_bounds(self) -> None:
        ClientAuth("x" * USER_NAME_MAX, SESSION_ID, ListSink(), secure=True)
        with pytest.raises(LocalError):
            ClientAuth("x" * (USER_NAME_MAX + 1), SESSION_ID, ListSink(), secure=True)
        with pytest.raises(LocalError):
            ClientAuth("\ud800", SESSION_ID, ListSink(), secure=True)

    def test_secrets_stay_out_of_errors(self) -> None:
        client, _ = make_client()
        with pytest.raises(LocalError) as caught:
            client.try_password("hunter2\ud800")
        assert "hunter2" not in str(caught.value)
        assert caught.value.__context__ is None
        client.try_password("hunter2")
        assert "hunter2" not in repr(client)


class TestAnswers:
    @pytest.mark.parametrize("action", ACTIONS)
    def test_failure(self, action: str) -> None:
        client, _ = make_client()
        ACTIONS[action](client)
        assert client.receive(failure("publickey,password", True)) == AuthRefused(("publickey", "password"), True)
        assert not client.busy

    def test_failure_with_strange_lists(self) -> None:
        client, _ = make_client()
        for names, expected in (
            ("", ()),
            ("x,", ("x",)),
            ("gssapi-with-mic,a" * 10, ("gssapi-with-mic", *["agssapi-with-mic"] * 9, "a")),
        ):
            client.try_none()
            assert client.receive(failure(names)) == AuthRefused(expected, False)

    @pytest.mark.parametrize("action", [name for name in ACTIONS if name != "query"])
    def test_success(self, action: str) -> None:
        client, _ = make_client()
        ACTIONS[action](client)
        assert client.receive(SUCCESS) == AuthSucceeded()
        assert client.authenticated

    def test_query_is_never_answered_with_success(self) -> None:
        client, _ = make_client()
        ACTIONS["query"](client)
        with pytest.raises(ProtocolError):
            client.receive(SUCCESS)
        assert not client.authenticated

    @pytest.mark.parametrize("payload", [SUCCESS, failure("password"), pk_ok(ED25519, b""), info_request()])
    def test_answer_to_nothing(self, payload: bytes) -> None:
        client, _ = make_client()
        with pytest.raises(ProtocolError):
            client.receive(payload)
        assert not client.authenticated

    @pytest.mark.parametrize(
        "payload", [SUCCESS, failure("password"), pk_ok(ED25519, b""), info_request(), banner("x")]
    )
    def test_answer_before_the_service(self, payload: bytes) -> None:
        client, _ = make_client(started=False)
        client.start()
        client.try_none()
        with pytest.raises(ProtocolError):
            client.receive(payload)
        assert not client.authenticated

    @pytest.mark.parametrize("number", [*range(6), *range(7, 51), *range(54, 60), *range(61, 256)])
    def test_other_messages(self, number: int) -> None:
        """Known bugs, I 114: nothing of another layer, role or method gets through."""
        client, sink = make_client()
        client.try_none()
        sink.take()
        with pytest.raises(ProtocolError):
            client.receive(bytes([number]) + s("x") + s("y") + b"\0")
        assert not client.authenticated
        assert sink.sent == []

    def test_service_accept(self) -> None:
        for payload in (b"\x06" + s("ssh-connection"), b"\x06" + s(""), b"\x06"):
            client, _ = make_client(started=False)
            client.start()
            with pytest.raises(ProtocolError):
                client.receive(payload)
        client, _ = make_client(started=False)
        with pytest.raises(ProtocolError):
            client.receive(SERVICE_ACCEPT)
        client, _ = make_client()
        with pytest.raises(ProtocolError):
            client.receive(SERVICE_ACCEPT)

    def test_messages_after_success_are_dropped(self) -> None:
        client, sink = make_client()
        client.try_none()
        sink.take()
        client.receive(SUCCESS)
        for number in range(50, 80):
            assert client.receive(bytes([number])) is None
        for number in (*range(50), *range(80, 256)):
            with pytest.raises(ProtocolError):
                client.receive(bytes([number]))
        assert sink.sent == []

    @pytest.mark.parametrize("action", ["none", "key"])
    def test_message_60_for_a_method_without_one(self, action: str) -> None:
        client, _ = make_client()
        ACTIONS[action](client)
        for payload in (pk_ok(ED25519, key(ED25519).public_key.blob), info_request(), b"\x3c" + s("change") + s("")):
            with pytest.raises(ProtocolError):
                client.receive(payload)


class TestPkOk:
    def test_echo(self) -> None:
        client, _ = make_client()
        blob = key(ED25519).public_key.blob
        client.query_key(key(ED25519).public_key, ED25519)
        assert client.receive(pk_ok(ED25519, blob)) == KeyAccepted(ED25519, blob)
        assert not client.busy
        with pytest.raises(ProtocolError):  # once
            client.receive(pk_ok(ED25519, blob))

    def test_every_changed_byte_is_noticed(self) -> None:
        good = pk_ok(ED25519, key(ED25519).public_key.blob)
        for position in range(1, len(good)):
            client, _ = make_client()
            client.query_key(key(ED25519).public_key, ED25519)
            bad = bytearray(good)
            bad[position] ^= 1
            with pytest.raises(ProtocolError):
                client.receive(bytes(bad))

    @pytest.mark.parametrize("algorithm", ["ssh-rsa", "rsa-sha2-256"])
    def test_another_algorithm_or_key(self, algorithm: str) -> None:
        client, _ = make_client()
        client.query_key(key("ssh-rsa").public_key, "rsa-sha2-512")
        with pytest.raises(ProtocolError):
            client.receive(pk_ok(algorithm, key("ssh-rsa").public_key.blob))
        client, _ = make_client()
        client.query_key(key(ED25519).public_key, ED25519)
        with pytest.raises(ProtocolError):
            client.receive(pk_ok(ED25519, key(ED25519, 1).public_key.blob))

    def test_an_old_query_does_not_count(self) -> None:
        client, _ = make_client()
        client.query_key(key(ED25519, 1).public_key, ED25519)
        client.receive(failure("publickey"))
        client.query_key(key(ED25519).public_key, ED25519)
        with pytest.raises(ProtocolError):
            client.receive(pk_ok(ED25519, key(ED25519, 1).public_key.blob))


class TestBanner:
    def test_before_and_between_requests(self) -> None:
        client, _ = make_client()
        assert client.receive(banner("hello")) == BannerReceived("hello", "hello")
        client.try_none()
        client.receive(banner("again"))
        assert client.busy
        client.receive(failure("password"))
        client.receive(banner("and again"))

    def test_escapes_keep_lines(self) -> None:
        client, _ = make_client()
        event = client.receive(banner("a\r\n\tb\x1b[2J\rc\x00\x9b\u202e\n".encode() + b"\xff"))
        assert isinstance(event, BannerReceived)
        assert event.escaped == "a\n\tb\\x1b[2J\\rc\\x00\\x9b\\u202e\n\\xff"
        assert event.text.startswith("a\r\n\tb\x1b[2J")

    def test_number_is_bounded(self) -> None:
        client, _ = make_client()
        for _ in range(AUTH_BANNERS_MAX):
            client.receive(banner(""))
        with pytest.raises(ProtocolError) as caught:
            client.receive(banner(""))
        assert caught.value.limit == AUTH_BANNERS_MAX

    def test_size_is_bounded(self) -> None:
        client, _ = make_client()
        client.receive(banner("x" * (AUTH_BANNER_TOTAL_MAX - 1)))
        client.receive(banner("x"))
        with pytest.raises(ProtocolError) as caught:
            client.receive(banner("x"))
        assert caught.value.limit == AUTH_BANNER_TOTAL_MAX


class TestPassword:
    def test_change(self) -> None:
        client, sink = make_client()
        client.try_password("old")
        event = client.receive(b"\x3c" + s("Expired\x07.\n") + s("en"))
        assert event == PasswordChangeRequested("Expired\\x07.\n")
        sink.take()
        client.change_password("old", "new")
        assert sink.one() == request("password", b"\1" + s("old") + s("new"))
        assert isinstance(client.receive(b"\x3c" + s("Not good enough") + s("")), PasswordChangeRequested)
        client.change_password("old", "better")
        assert client.receive(SUCCESS) == AuthSucceeded()

    def test_another_method_instead_of_a_change(self) -> None:
        client, sink = make_client()
        client.try_password("old")
        client.receive(b"\x3c" + s("Expired") + s(""))
        ACTIONS["key"](client)
        assert len(sink.take()) == 2


class TestKeyboardInteractive:
    def test_rounds(self) -> None:
        client, sink = make_client()
        client.try_keyboard_interactive()
        event = client.receive(
            info_request(("Password: ", False), ("Code\x1b: ", True), name="N\n", instructions="a\r\nb")
        )
        assert event == PromptsReceived("N\\n", "a\nb", (("Password: ", False), ("Code\\x1b: ", True)))
        sink.take()
        client.answer(["pässword", ""])
        assert sink.one() == info_response("pässword", "")
        assert client.receive(info_request()) == PromptsReceived("", "", ())
        client.answer([])
        assert sink.one() == info_response()
        assert client.receive(SUCCESS) == AuthSucceeded()

    def test_answers_must_fit(self) -> None:
        client, sink = make_client()
        with pytest.raises(LocalError):
            client.answer([])
        client.try_keyboard_interactive()
        with pytest.raises(LocalError):
            client.answer([])
        client.receive(info_request(("a", False), ("b", False)))
        sink.take()
        for wrong in ([], ["x"], ["x"] * 3, "xy", ["x", "\ud800"]):
            with pytest.raises(LocalError):
                client.answer(wrong)
        assert sink.sent == []
        client.answer(["x", "y"])
        with pytest.raises(LocalError):
            client.answer(["x", "y"])

    def test_another_method_instead_of_answers(self) -> None:
        client, _ = make_client()
        client.try_keyboard_interactive()
        client.receive(info_request(("a", False)))
        client.try_password("secret")
        with pytest.raises(LocalError):
            client.answer(["x"])

    @pytest.mark.parametrize("count", [AUTH_PROMPTS_MAX + 1, 2**31, 2**32 - 1])
    def test_count_is_bounded_first(self, count: int) -> None:
        """Known bugs, I 120."""
        client, _ = make_client()
        client.try_keyboard_interactive()
        with pytest.raises(ProtocolError) as caught:
            client.receive(info_request(count=count))
        assert caught.value.limit == AUTH_PROMPTS_MAX

    def test_most_prompts(self) -> None:
        client, _ = make_client()
        client.try_keyboard_interactive()
        event = client.receive(info_request(*[("p", False)] * AUTH_PROMPTS_MAX))
        assert isinstance(event, PromptsReceived)
        assert len(event.prompts) == AUTH_PROMPTS_MAX

    def test_rounds_are_bounded(self) -> None:
        client, _ = make_client()
        client.try_keyboard_interactive()
        for _ in range(AUTH_ROUNDS_MAX):
            client.receive(info_request())
            client.answer([])
        with pytest.raises(ProtocolError) as caught:
            client.receive(info_request())
        assert caught.value.limit == AUTH_ROUNDS_MAX


class TestHostile:
    MESSAGES: tuple[tuple[str, bytes], ...] = (
        ("none", failure("publickey,password", True)),
        ("none", SUCCESS),
        ("none", banner("text")),
        ("query", pk_ok(ED25519, key(ED25519).public_key.blob)),
        ("password", b"\x3c" + s("Expired") + s("en")),
        ("keyboard", info_request(("a", False), ("b", True), name="n", instructions="i")),
    )

    @pytest.mark.parametrize(("action", "payload"), MESSAGES)
    def test_truncated_and_trailing(self, action: str, payload: bytes) -> None:
        for bad in (*(payload[:size] for size in range(len(payload))), payload + b"\0"):
            client, _ = make_client()
            ACTIONS[action](client)
            with pytest.raises(ProtocolError):
                client.receive(bad)
            assert not client.authenticated

    @given(
        action=st.sampled_from(sorted(ACTIONS)),
        payloads=st.lists(
            st.one_of(
                st.binary(max_size=80),
                st.builds(
                    lambda number, rest: bytes([number]) + rest,
                    st.sampled_from([6, 51, 53, 60]),
                    st.binary(max_size=60),
                ),
                st.builds(
                    lambda number, fields, rest: bytes([number]) + b"".join(map(s, fields)) + rest,
                    st.sampled_from([6, 51, 53, 60]),
                    st.lists(st.binary(max_size=9), max_size=4),
                    st.binary(max_size=9),
                ),
            ),
            max_size=5,
        ),
    )
    def test_random(self, action: str, payloads: list[bytes]) -> None:
        client, _ = make_client()
        ACTIONS[action](client)
        for payload in payloads:
            try:
                client.receive(payload)
            except ProtocolError:
                break
        assert not client.authenticated or SUCCESS in payloads


@pytest.mark.parametrize(
    ("algorithm", "listed", "expected"),
    [
        ("ssh-rsa", None, ("rsa-sha2-512", "rsa-sha2-256")),
        ("ssh-rsa", ("ssh-ed25519", "rsa-sha2-256", "rsa-sha2-512"), ("rsa-sha2-512",)),
        ("ssh-rsa", ("ssh-rsa", "rsa-sha2-256"), ("rsa-sha2-256",)),
        ("ssh-rsa", ("ssh-rsa", "ssh-ed25519"), ()),
        ("ssh-rsa", (), ()),
        (ED25519, None, (ED25519,)),
        (ED25519, (ED25519,), (ED25519,)),
        (ED25519, ("rsa-sha2-256", "rsa-sha2-512"), (ED25519,)),
    ],
)
def test_choose_algorithms(algorithm: str, listed: tuple[str, ...] | None, expected: tuple[str, ...]) -> None:
    """Known bugs, F 70: the list decides, and without one at most one attempt is wasted."""
    assert choose_algorithms(key(algorithm), listed) == expected
    assert choose_algorithms(key(algorithm).public_key, listed) == expected

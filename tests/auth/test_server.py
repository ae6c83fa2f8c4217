"""The server machine against messages written by hand: what is common to all methods."""

from __future__ import annotations

import pytest

from sshtransport.auth import (
    NoneRequested,
    PasswordPresented,
)
from sshtransport.constants import (
    AUTH_QUEUED_BYTES_MAX,
    AUTH_QUEUED_MAX,
    AUTH_REQUESTS_MAX,
    USER_NAME_MAX,
)
from sshtransport.errors import DisconnectReason, LocalError, ProtocolError
from tests.support.auth import (
    ALL_METHODS,
    KEYBOARD_INTERACTIVE,
    SERVICE_ACCEPT,
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


class TestService:
    def test_answered_each_time(self) -> None:
        """Some clients ask before every attempt; known bugs, I 117."""
        server, sink = make_server(started=False)
        for _ in range(3):
            assert server.receive(SERVICE_REQUEST) is None
            assert sink.one() == SERVICE_ACCEPT
            server.receive(password("wrong"))
            server.refuse()
            assert sink.one() == FAILURE

    @pytest.mark.parametrize("name", ["ssh-connection", "", "ssh-userauth\n", "x" * 1000])
    def test_unknown(self, name: str) -> None:
        server, sink = make_server(started=False)
        with pytest.raises(ProtocolError) as caught:
            server.receive(b"\x05" + s(name))
        assert caught.value.reason is DisconnectReason.SERVICE_NOT_AVAILABLE
        assert sink.sent == []

    def test_login_needs_the_service(self) -> None:
        server, sink = make_server(started=False)
        with pytest.raises(ProtocolError):
            server.receive(request("none"))
        assert sink.sent == []

    def test_login_for_another_service(self) -> None:
        server, sink = make_server()
        with pytest.raises(ProtocolError) as caught:
            server.receive(request("none", service="ssh-userauth"))
        assert caught.value.reason is DisconnectReason.SERVICE_NOT_AVAILABLE
        assert sink.sent == []

    @pytest.mark.parametrize("number", [*range(5), *range(6, 50), *range(51, 61), *range(62, 256)])
    def test_other_messages(self, number: int) -> None:
        """Known bugs, I 114: connection messages and a client's SUCCESS let nobody in."""
        server, sink = make_server()
        with pytest.raises(ProtocolError):
            server.receive(bytes([number]) + s("session") + bytes(12))
        assert not server.authenticated
        assert sink.sent == []
        for verdict in (server.accept, server.refuse, server.partial, server.key_ok):
            with pytest.raises(LocalError):
                verdict()

    def test_unknown_methods_are_the_callers_mistake(self) -> None:
        for name in ("none", "hostbased", ""):
            with pytest.raises(LocalError):
                make_server({name})
        with pytest.raises(LocalError):
            make_server(max_tries=0)
        with pytest.raises(LocalError):
            make_server(max_key_queries=0)


class TestIdentity:
    @pytest.mark.parametrize("user", ["you", "", "me\0", "Me", b"me\xff"])
    def test_user_must_not_change(self, user: str | bytes) -> None:
        server, sink = make_server()
        server.receive(request("none"))
        server.refuse()
        sink.take()
        with pytest.raises(ProtocolError) as caught:
            server.receive(request("none", user=user))
        assert caught.value.reason is DisconnectReason.PROTOCOL_ERROR
        assert sink.sent == []

    def test_user_must_not_change_after_an_unknown_method(self) -> None:
        server, _ = make_server()
        server.receive(request("unknown"))
        with pytest.raises(ProtocolError):
            server.receive(password("x", "you"))

    def test_user_must_not_change_after_partial_success(self) -> None:
        server, _ = make_server()
        server.receive(password("x"))
        server.partial()
        with pytest.raises(ProtocolError):
            server.receive(signed(key(ED25519), ED25519, "you"))

    def test_user_name_is_passed_on_whole(self) -> None:
        """Known bugs, M 164: what is done with a strange name is not decided here."""
        for user in ("../x", "a\0b", "%h", "x\ny", "é", ""):
            server, _ = make_server()
            assert server.receive(request("none", user=user)) == NoneRequested(user)
        server, _ = make_server()
        assert server.receive(request("none", user=b"\xff")) == NoneRequested("\udcff")

    def test_user_name_is_bounded(self) -> None:
        server, _ = make_server()
        assert server.receive(request("none", user="x" * USER_NAME_MAX)) is not None
        server, _ = make_server()
        with pytest.raises(ProtocolError) as caught:
            server.receive(request("none", user="x" * (USER_NAME_MAX + 1)))
        assert caught.value.limit == USER_NAME_MAX


class TestLimits:
    def test_last_failure_is_a_disconnect_only(self) -> None:
        """Known bugs, I 121."""
        server, sink = make_server(max_tries=3)
        for _ in range(2):
            server.receive(password("x"))
            server.refuse()
        assert sink.take() == [FAILURE, FAILURE]
        server.receive(password("x"))
        with pytest.raises(ProtocolError, match="too many authentication failures") as caught:
            server.refuse()
        assert caught.value.reason is DisconnectReason.NO_MORE_AUTH_METHODS_AVAILABLE
        assert caught.value.limit == 3
        assert sink.sent == []

    def test_free_requests(self) -> None:
        """The first "none" and queries with a positive answer do not count, nor does partial success."""
        server, sink = make_server(max_tries=1, max_key_queries=1)
        server.receive(request("none"))
        server.refuse()
        for _ in range(50):
            server.receive(query(key(ED25519), ED25519))
            server.key_ok()
        server.receive(password("right"))
        server.partial()
        server.receive(signed(key(ED25519), ED25519))
        server.accept()
        assert sink.take()[-1] == SUCCESS

    @pytest.mark.parametrize("algorithm", [ED25519, "unknown"])
    def test_refused_queries(self, algorithm: str) -> None:
        """Known bugs, I 116: an agent full of keys is fine, a scanner is not."""
        server, sink = make_server(max_tries=1, max_key_queries=20)

        def refused() -> None:
            if server.receive(query(key(ED25519), algorithm)) is not None:
                server.refuse()

        for _ in range(19):
            refused()
            assert sink.one() == FAILURE
        with pytest.raises(ProtocolError, match="too many authentication failures"):
            refused()
        assert sink.sent == []

    @pytest.mark.parametrize(
        "payload",
        [
            request("unknown"),
            request("hostbased", b"anything"),
            request("gssapi-with-mic", b"\xff\xff\xff\xff"),
            request("x" * 2000),
            signed(key(ED25519), ED25519)[:-1] + b"\xff",  # the last byte of a right one is at most 16
            request("password", b"\1" + s("a") + s("b")),
        ],
    )
    def test_failures_found_here_count_too(self, payload: bytes) -> None:
        """Known bugs, I 118 and I 120: an unknown method is refused, and its body is not looked at."""
        server, sink = make_server(max_tries=3)
        assert server.receive(payload) is None
        assert server.receive(payload) is None
        assert sink.take() == [FAILURE, FAILURE]
        with pytest.raises(ProtocolError, match="too many authentication failures"):
            server.receive(payload)
        assert sink.sent == []

    def test_all_messages_are_counted(self) -> None:
        server, sink = make_server()
        for _ in range(AUTH_REQUESTS_MAX - 1):
            server.receive(SERVICE_REQUEST)
        assert len(sink.take()) == AUTH_REQUESTS_MAX - 1
        with pytest.raises(ProtocolError):
            server.receive(SERVICE_REQUEST)
        assert sink.sent == []


class TestPartialSuccess:
    """Known bugs, I 121."""

    def test_method_leaves_the_list(self) -> None:
        server, sink = make_server({"publickey", "password"})
        server.receive(signed(key(ED25519), ED25519))
        server.partial()
        assert sink.one() == failure("password", True)
        assert server.completed == ("publickey",)
        assert server.receive(signed(key(ED25519), ED25519)) is None
        assert sink.one() == failure("password")
        server.receive(password("x"))
        server.accept()
        assert sink.one() == SUCCESS

    def test_caller_may_name_the_rest(self) -> None:
        server, sink = make_server()
        server.receive(signed(key(ED25519), ED25519))
        server.partial(["password", "publickey"])
        assert sink.one() == failure("publickey,password", True)
        server.receive(signed(key(ED25519, 1), ED25519))
        server.partial(iter(["password"]))
        assert sink.one() == failure("password", True)
        assert server.completed == ("publickey", "publickey")

    def test_rest_cannot_grow(self) -> None:
        server, sink = make_server({"publickey"})
        server.receive(signed(key(ED25519), ED25519))
        server.partial(["password", "none", "hostbased"])
        assert sink.one() == failure("", True)
        assert server.receive(password("x")) is None
        assert not server.authenticated

    def test_keyboard_interactive(self) -> None:
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        server.ask("", "", [])
        server.receive(info_response())
        sink.take()
        server.partial()
        assert sink.one() == failure("publickey,password", True)
        assert server.completed == ("keyboard-interactive",)


class TestQueue:
    def test_requests_wait_for_the_verdict(self) -> None:
        server, sink = make_server()
        assert isinstance(server.receive(request("none")), NoneRequested)
        assert server.receive(SERVICE_REQUEST) is None
        assert server.receive(password("a")) is None
        assert server.receive(password("b")) is None
        assert server.next_event() is None
        assert sink.sent == []
        server.refuse()
        assert server.next_event() == PasswordPresented("me", "a")
        assert server.next_event() is None
        assert sink.take() == [FAILURE, SERVICE_ACCEPT]
        server.refuse()
        assert server.next_event() == PasswordPresented("me", "b")
        server.accept()
        assert server.next_event() is None
        assert sink.take() == [FAILURE, SUCCESS]

    def test_order_holds_when_next_event_was_forgotten(self) -> None:
        server, _ = make_server()
        server.receive(password("a"))
        server.receive(password("b"))
        server.refuse()
        assert server.receive(password("c")) == PasswordPresented("me", "b")

    def test_number_is_bounded(self) -> None:
        server, _ = make_server()
        server.receive(request("none"))
        for _ in range(AUTH_QUEUED_MAX):
            assert server.receive(request("none")) is None
        with pytest.raises(ProtocolError) as caught:
            server.receive(request("none"))
        assert caught.value.limit == AUTH_QUEUED_MAX

    def test_bytes_are_bounded(self) -> None:
        server, _ = make_server()
        server.receive(request("none"))
        filler = len(request("x"))
        assert server.receive(request("x", bytes(AUTH_QUEUED_BYTES_MAX - filler))) is None
        with pytest.raises(ProtocolError) as caught:
            server.receive(b"\x05")
        assert caught.value.limit == AUTH_QUEUED_BYTES_MAX

    def test_success_drops_what_waits(self) -> None:
        server, sink = make_server()
        server.receive(password("right"))
        server.receive(password("other", "another user"))
        server.accept()
        assert server.next_event() is None
        assert sink.take() == [SUCCESS]


class TestAfterSuccess:
    def test_login_messages_are_dropped(self) -> None:
        server, sink = make_server()
        server.receive(request("none"))
        server.accept()
        sink.take()
        for number in (5, *range(50, 80)):
            assert server.receive(bytes([number])) is None
        assert server.receive(password("x", "root")) is None
        for number in (*range(5), *range(6, 50), *range(80, 256)):
            with pytest.raises(ProtocolError):
                server.receive(bytes([number]))
        assert sink.sent == []

    def test_success_is_sent_once(self) -> None:
        server, sink = make_server()
        server.receive(request("none"))
        server.accept()
        for verdict in (server.accept, server.refuse, server.partial):
            with pytest.raises(LocalError):
                verdict()
        with pytest.raises(LocalError):
            server.banner("late")
        assert sink.take() == [SUCCESS]


class TestBanner:
    def test_lines_end_with_crlf(self) -> None:
        server, sink = make_server()
        server.banner("a\nb\r\nc")
        assert sink.one() == b"\x35" + s("a\r\nb\r\nc") + s("")

    def test_only_once_the_service_is_accepted(self) -> None:
        server, sink = make_server(started=False)
        with pytest.raises(LocalError):
            server.banner("early")
        assert sink.sent == []


def test_partial_keeps_order_of_listing() -> None:
    server, sink = make_server(["password", "publickey", "keyboard-interactive"])
    server.receive(request("none"))
    server.partial(ALL_METHODS)
    assert sink.one() == PARTIAL

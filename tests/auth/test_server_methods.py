"""The server machine against messages written by hand: each method."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sshtransport.auth import (
    AnswersReceived,
    KeyboardInteractiveAborted,
    KeyboardInteractiveRequested,
    KeyPresented,
    KeyQueried,
    NoneRequested,
    PasswordPresented,
)
from sshtransport.constants import (
    AUTH_PROMPTS_MAX,
    AUTH_SECRET_MAX,
    AUTH_SUBMETHODS_MAX,
)
from sshtransport.errors import LocalError, ProtocolError
from sshtransport.keys import PrivateKey
from tests.support.auth import (
    KEYBOARD_INTERACTIVE,
    SESSION_ID,
    SUCCESS,
    failure,
    info_request,
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


def pk_ok(algorithm: str, blob: bytes) -> bytes:
    return b"\x3c" + s(algorithm) + s(blob)


class TestNone:
    def test_can_be_accepted(self) -> None:
        server, sink = make_server()
        assert server.receive(request("none")) == NoneRequested("me")
        server.accept()
        assert sink.one() == SUCCESS

    def test_only_the_first_is_free(self) -> None:
        server, sink = make_server(max_tries=2)
        for _ in range(2):
            server.receive(request("none"))
            server.refuse()
        assert sink.take() == [FAILURE, FAILURE]
        server.receive(request("none"))
        with pytest.raises(ProtocolError):
            server.refuse()
        assert sink.sent == []


class TestPublicKey:
    ALGORITHMS = (ED25519, "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "rsa-sha2-512", "rsa-sha2-256")

    @staticmethod
    def key_type(algorithm: str) -> str:
        return "ssh-rsa" if algorithm.startswith("rsa") else algorithm

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_query_then_signature(self, algorithm: str) -> None:
        private = key(self.key_type(algorithm))
        server, sink = make_server()
        assert server.receive(query(private, algorithm)) == KeyQueried("me", private.public_key, algorithm)
        server.key_ok()
        assert sink.one() == pk_ok(algorithm, private.public_key.blob)
        assert not server.authenticated
        assert server.receive(signed(private, algorithm)) == KeyPresented("me", private.public_key, algorithm)
        server.accept()
        assert sink.one() == SUCCESS
        assert server.authenticated

    def test_a_query_cannot_be_accepted(self) -> None:
        server, sink = make_server()
        server.receive(query(key(ED25519), ED25519))
        for verdict in (server.accept, server.partial):
            with pytest.raises(LocalError):
                verdict()
        with pytest.raises(LocalError):
            server.ask("", "", [])
        assert sink.sent == []
        server.refuse()
        assert sink.one() == FAILURE

    def test_key_ok_is_for_queries_only(self) -> None:
        for payload in (signed(key(ED25519), ED25519), password("x"), request("none"), KEYBOARD_INTERACTIVE):
            server, sink = make_server()
            server.receive(payload)
            with pytest.raises(LocalError):
                server.key_ok()
            assert sink.sent == []

    def test_every_changed_byte_breaks_the_signature(self) -> None:
        """Nothing that the client sent is outside of what is verified."""
        good = signed(key(ED25519), ED25519)
        flag_at = len(request("publickey"))
        for position in range(1, len(good)):
            if position == flag_at:
                continue
            bad = bytearray(good)
            bad[position] ^= 0x20
            server, sink = make_server()
            try:
                event = server.receive(bytes(bad))
            except ProtocolError:
                assert sink.sent == []
            else:
                assert event is None, position
                assert sink.one() == FAILURE
            assert not server.authenticated

    def test_other_session(self) -> None:
        server, sink = make_server()
        for session_id in (b"", SESSION_ID[:-1], bytes(32)):
            assert server.receive(signed(key(ED25519), ED25519, session_id=session_id)) is None
            assert sink.one() == FAILURE

    def test_session_id_is_covered_as_a_string(self) -> None:
        private = key(ED25519)
        unsigned = request("publickey", b"\1" + s(ED25519) + s(private.public_key.blob))
        server, sink = make_server()
        assert server.receive(unsigned + s(private.sign(ED25519, SESSION_ID + unsigned))) is None
        assert sink.one() == FAILURE

    def test_strange_true_is_signed_as_one(self) -> None:
        private = key(ED25519)
        good = signed(private, ED25519)
        flag_at = len(request("publickey"))
        server, _ = make_server()
        event = server.receive(good[:flag_at] + b"\xff" + good[flag_at + 1 :])
        assert event == KeyPresented("me", private.public_key, ED25519)

    def test_user_name_is_covered_as_received(self) -> None:
        private = key(ED25519)
        unsigned = request("publickey", b"\1" + s(ED25519) + s(private.public_key.blob), b"\xff\xfe")
        server, _ = make_server()
        event = server.receive(unsigned + s(private.sign(ED25519, s(SESSION_ID) + unsigned)))
        assert event == KeyPresented("\udcff\udcfe", private.public_key, ED25519)

    @pytest.mark.parametrize("make", [query, signed])
    def test_exact_algorithm_is_on_the_list(self, make: Callable[[PrivateKey, str], bytes]) -> None:
        """Known bugs, I 124: one curve or one hash on the list does not let the others in."""
        for allowed, offered in (
            ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256"),
            ("rsa-sha2-512", "rsa-sha2-256"),
            ("rsa-sha2-256", "rsa-sha2-512"),
            ("ecdsa-sha2-nistp256", ED25519),
        ):
            server, sink = make_server(algorithms=(allowed,))
            assert server.receive(make(key(self.key_type(offered)), offered)) is None
            assert sink.one() == FAILURE
            assert server.receive(make(key(self.key_type(allowed)), allowed)) is not None

    @pytest.mark.parametrize(
        ("stated", "actual"),
        [("ssh-rsa", "rsa-sha2-512"), ("rsa-sha2-256", "rsa-sha2-512"), ("rsa-sha2-512", "rsa-sha2-256")],
    )
    def test_signature_blob_names_the_stated_algorithm(self, stated: str, actual: str) -> None:
        """Known bugs, I 124."""
        server, sink = make_server()
        assert server.receive(signed(key("ssh-rsa"), stated, sign_with=actual)) is None
        assert sink.one() == FAILURE

    @pytest.mark.parametrize("stated", [ED25519, "ecdsa-sha2-nistp256", "rsa-sha2-512"])
    def test_key_is_of_the_stated_type(self, stated: str) -> None:
        """Known bugs, I 124."""
        other = key("ecdsa-sha2-nistp384")
        server, sink = make_server()
        for payload in (query(other, stated), signed(other, stated, sign_with="ecdsa-sha2-nistp384")):
            assert server.receive(payload) is None
            assert sink.one() == FAILURE

    @pytest.mark.parametrize(
        ("algorithm", "blob"),
        [
            ("ssh-dss", s("ssh-dss") + s(b"x" * 100)),
            ("ssh-ed25519-cert-v01@openssh.com", s("ssh-ed25519-cert-v01@openssh.com") + s("x")),
            (ED25519, b""),
            (ED25519, s(ED25519)),
            (ED25519, s(ED25519) + s(b"x" * 31)),
            (ED25519, s(ED25519) + s(b"x" * 32) + b"\0"),
            (ED25519, s("ssh-rsa") + s(b"x" * 32)),
            (ED25519, b"\xff\xff\xff\xff"),
            (ED25519, s(b"\xff\xfe")),
            ("rsa-sha2-512", s("ssh-rsa") + s(b"\x03") + s(b"\x7f" * 4000)),
            ("rsa-sha2-512", s("ssh-rsa") + s(b"") + s(b"")),
            ("ecdsa-sha2-nistp256", s("ecdsa-sha2-nistp256") + s("nistp256") + s(b"\x02" + b"x" * 32)),
            ("ecdsa-sha2-nistp256", s("ecdsa-sha2-nistp256") + s("nistp256") + s(b"\0")),
            ("", b""),
            ("\xff", b"\xff"),
            ("x" * 5000, b"y" * 5000),
        ],
    )
    def test_a_key_that_cannot_be_used_is_refused_only(self, algorithm: str, blob: bytes) -> None:
        """Known bugs, I 118: the client may have better ones."""
        server, sink = make_server()
        assert server.receive(request("publickey", b"\0" + s(algorithm) + s(blob))) is None
        assert sink.one() == FAILURE
        signature = s(s(algorithm) + s(b"x" * 64))
        assert server.receive(request("publickey", b"\1" + s(algorithm) + s(blob) + signature)) is None
        assert sink.one() == FAILURE
        assert server.receive(signed(key(ED25519), ED25519)) is not None

    def test_small_rsa_keys(self) -> None:
        for bits, usable in ((2048, True), (3072, False)):
            server, sink = make_server(rsa_min_bits=bits)
            assert (server.receive(query(key("ssh-rsa"), "rsa-sha2-512")) is not None) is usable
            assert sink.take() == ([] if usable else [FAILURE])

    def test_no_lookup_for_a_bad_signature(self) -> None:
        """The user is asked about proven keys only, so a wrong signature costs the same for every name."""
        good = signed(key(ED25519), ED25519)
        for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:-68] + s(b"x" * 64)):
            server, sink = make_server()
            assert server.receive(bad) is None
            assert sink.one() == FAILURE

    def test_method_not_listed(self) -> None:
        server, sink = make_server({"password"})
        for payload in (query(key(ED25519), ED25519), signed(key(ED25519), ED25519)):
            assert server.receive(payload) is None
            assert sink.one() == failure("password")


class TestPassword:
    def test_accept_and_refuse(self) -> None:
        server, sink = make_server()
        assert server.receive(password("wröng")) == PasswordPresented("me", "wröng")
        server.refuse()
        assert sink.one() == FAILURE
        server.receive(password("right"))
        server.accept()
        assert sink.one() == SUCCESS

    def test_hidden_in_repr(self) -> None:
        server, _ = make_server()
        event = server.receive(password("hunter2"))
        assert "hunter2" not in repr(event)
        assert "hunter2" not in repr(server)

    def test_change_is_refused(self) -> None:
        server, sink = make_server(max_tries=2)
        assert server.receive(request("password", b"\1" + s("old") + s("new"))) is None
        assert sink.one() == FAILURE
        with pytest.raises(ProtocolError):  # it counted
            server.receive(request("password", b"\1" + s("old") + s("new")))

    def test_size_is_bounded(self) -> None:
        server, _ = make_server()
        assert server.receive(password("x" * AUTH_SECRET_MAX)) is not None
        for body in (b"\0" + s("x" * (AUTH_SECRET_MAX + 1)), b"\1" + s("x") + s("x" * (AUTH_SECRET_MAX + 1))):
            server, _ = make_server()
            with pytest.raises(ProtocolError) as caught:
                server.receive(request("password", body))
            assert caught.value.limit == AUTH_SECRET_MAX

    def test_not_on_an_insecure_line(self) -> None:
        """Known bugs, B 17: neither listed nor taken, whatever the caller configured."""
        server, sink = make_server(secure=False)
        assert server.methods == ("publickey",)
        for payload in (password("right"), KEYBOARD_INTERACTIVE):
            assert server.receive(payload) is None
            assert sink.one() == failure("publickey")
        assert server.receive(signed(key(ED25519), ED25519)) is not None

    def test_method_not_listed(self) -> None:
        server, sink = make_server({"publickey"})
        assert server.receive(password("right")) is None
        assert sink.one() == failure("publickey")


class TestKeyboardInteractive:
    def test_rounds(self) -> None:
        server, sink = make_server()
        event = server.receive(request("keyboard-interactive", s("en") + s("pam,otp,")))
        assert event == KeyboardInteractiveRequested("me", ("pam", "otp"))
        assert not server.response_expected
        server.ask("N", "Instructions", [("Password: ", False), ("Code: ", True)])
        assert sink.one() == info_request(
            ("Password: ", False), ("Code: ", True), name="N", instructions="Instructions"
        )
        assert server.response_expected
        event = server.receive(info_response("hunter2", ""))
        assert event == AnswersReceived(("hunter2", ""))
        assert "hunter2" not in repr(event)
        assert not server.response_expected
        server.ask("", "", [])
        assert sink.one() == info_request()
        assert server.receive(info_response()) == AnswersReceived(())
        server.accept()
        assert sink.one() == SUCCESS

    def test_refused_after_answers(self) -> None:
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        server.ask("", "", [("?", False)])
        server.receive(info_response("x"))
        sink.take()
        server.refuse()
        assert sink.one() == FAILURE

    @pytest.mark.parametrize("answers", [(), ("a",), ("a", "b", "c"), ("a",) * 200])
    def test_wrong_number_of_answers(self, answers: tuple[str, ...]) -> None:
        """RFC 4256, section 3.4."""
        server, sink = make_server(max_tries=2)
        server.receive(KEYBOARD_INTERACTIVE)
        server.ask("", "", [("a", False), ("b", False)])
        sink.take()
        assert server.receive(info_response(*answers)) is None
        assert sink.one() == FAILURE
        server.receive(password("x"))
        with pytest.raises(ProtocolError):  # the round counted
            server.refuse()

    @pytest.mark.parametrize("count", [3, 2**16, 2**31, 2**32 - 1])
    def test_count_is_checked_against_the_bytes_first(self, count: int) -> None:
        """Known bugs, I 120."""
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        server.ask("", "", [("a", False), ("b", False)])
        sink.take()
        with pytest.raises(ProtocolError):
            server.receive(info_response("", "", count=count))
        assert sink.sent == []

    def test_answers_nobody_asked_for(self) -> None:
        server, sink = make_server()
        assert server.receive(info_response("x")) is None
        server.receive(KEYBOARD_INTERACTIVE)
        assert server.receive(info_response("x")) is None  # sent before the questions
        assert server.next_event() is None
        server.ask("", "", [("?", False)])
        assert server.next_event() is None
        assert sink.one() == info_request(("?", False))
        assert server.receive(info_response("y")) == AnswersReceived(("y",))
        assert server.receive(info_response("y")) is None
        server.refuse()
        assert server.next_event() is None
        assert server.receive(info_response("y")) is None
        assert sink.one() == FAILURE

    def test_new_request_ends_the_round(self) -> None:
        """RFC 4252, section 5.1: and no FAILURE for what was left."""
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        server.ask("", "", [("?", False)])
        sink.take()
        assert server.receive(password("x")) == KeyboardInteractiveAborted()
        assert not server.response_expected
        for verdict in (server.accept, server.refuse, server.partial):
            with pytest.raises(LocalError):
                verdict()
        assert server.next_event() == PasswordPresented("me", "x")
        assert sink.sent == []
        server.accept()
        assert sink.one() == SUCCESS

    def test_new_request_before_the_questions(self) -> None:
        """The questions are not even sent: their number, 60, means something else to the next method."""
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        assert server.receive(query(key(ED25519), ED25519)) is None
        server.ask("", "", [("?", False)])
        assert sink.sent == []
        assert server.next_event() == KeyboardInteractiveAborted()
        assert server.next_event() == KeyQueried("me", key(ED25519).public_key, ED25519)
        server.key_ok()
        assert sink.one() == pk_ok(ED25519, key(ED25519).public_key.blob)

    def test_left_rounds_count(self) -> None:
        """Each may have sent a message to somebody's telephone."""
        server, _ = make_server(max_tries=3)
        server.receive(KEYBOARD_INTERACTIVE)
        for _ in range(2):
            server.ask("", "", [("?", False)])
            assert server.receive(KEYBOARD_INTERACTIVE) == KeyboardInteractiveAborted()
            assert isinstance(server.next_event(), KeyboardInteractiveRequested)
        server.ask("", "", [("?", False)])
        with pytest.raises(ProtocolError):
            server.receive(KEYBOARD_INTERACTIVE)

    def test_bad_questions(self) -> None:
        server, sink = make_server()
        server.receive(KEYBOARD_INTERACTIVE)
        for prompts in ([("", False)], [("?", True)] * (AUTH_PROMPTS_MAX + 1), [("\ud800", True)]):
            with pytest.raises(LocalError):
                server.ask("", "", prompts)
        assert sink.sent == []
        server.ask("", "", [("?", True)] * AUTH_PROMPTS_MAX)  # nothing had changed
        assert len(sink.sent) == 1
        with pytest.raises(LocalError):
            server.ask("", "", [])

    def test_questions_belong_to_the_method(self) -> None:
        for payload in (password("x"), request("none"), signed(key(ED25519), ED25519)):
            server, sink = make_server()
            server.receive(payload)
            with pytest.raises(LocalError):
                server.ask("", "", [])
            assert sink.sent == []

    def test_hints_are_bounded(self) -> None:
        server, _ = make_server()
        with pytest.raises(ProtocolError) as caught:
            server.receive(request("keyboard-interactive", s("") + s("x" * (AUTH_SUBMETHODS_MAX + 1))))
        assert caught.value.limit == AUTH_SUBMETHODS_MAX

    def test_method_not_listed(self) -> None:
        server, sink = make_server({"password"})
        assert server.receive(KEYBOARD_INTERACTIVE) is None
        assert sink.one() == failure("password")

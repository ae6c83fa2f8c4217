"""Lines and name patterns of trust files."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sshtransport.errors import KeyFileError
from sshtransport.keys.trust_files import lines_of, lower, matches, read_text


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "anything", True),
        ("?", "", False),
        ("?", "a", True),
        ("?*", "", False),
        ("a*c", "abbc", True),
        ("a*c", "abbcd", False),
        ("*.example.com", "www.example.com", True),
        ("*.example.com", "example.com", False),
        ("*a*b*", "xxaxxbxx", True),
        ("*a*b", "ab", True),
        ("**", "a", True),
        ("a?", "a", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("[*]:2222", "[host]:2222", True),
        ("[!a]", "b", False),
        ("a.c", "abc", False),
        ("10.0.0.?", "10.0.0.12", False),
    ],
)
def test_matches(pattern: str, name: str, expected: bool) -> None:
    """known bugs K 141: only * and ? are special, brackets are not classes."""
    assert matches(pattern, name) is expected


@given(st.text("ab*?[]", max_size=8), st.text("ab[]", max_size=8))
def test_matches_like_the_regular_expression(pattern: str, name: str) -> None:
    special = {"*": ".*", "?": "."}
    expression = "".join(special.get(c, re.escape(c)) for c in pattern)
    assert matches(pattern, name) is (re.fullmatch(expression, name) is not None)


def test_matching_is_not_exponential() -> None:
    start = time.perf_counter()
    assert not matches("*a" * 100 + "b", "a" * 1000)
    assert time.perf_counter() - start < 2


def test_lower_knows_ascii_only() -> None:
    assert lower("HOST-K\u212a-É") == "host-k\u212a-É"


def test_lines_end_at_line_feed_and_nowhere_else() -> None:
    separators = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r"
    text = "".join(f"# comment{c}evil\n" for c in separators) + "a\r\n\tb \n\n #c\n\x85d\ne\x00f\ng\rh"
    assert list(lines_of(text, 100)) == [
        (10, "a", ""),
        (11, "b", ""),
        (14, "\x85d", ""),
        (15, "", "line has control characters"),
        (16, "", "line has control characters"),
    ]


def test_line_limit() -> None:
    assert list(lines_of("x" * 10 + "\n" + "x" * 11 + "\n#" + "x" * 99, 10)) == [
        (1, "x" * 10, ""),
        (2, "", "line is longer than 10 characters"),
    ]


def test_read_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\xff")
    assert read_text(str(path), 2) == "a\udcff"
    for bad, limit in ((path, 1), (tmp_path, 9), (tmp_path / "none", 9)):
        with pytest.raises(KeyFileError) as caught:
            read_text(str(bad), limit)
        assert caught.value.path == str(bad)
    with pytest.raises(KeyFileError):
        read_text("a\0", 1)

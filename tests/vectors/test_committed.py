"""The committed vectors: their generator gives them, asyncssh agrees, and both would notice a fault."""

from __future__ import annotations

import json

import pytest
from asyncssh.misc import KeyExchangeFailed

from tests.support.vectors import VARIABLE, Vector, folder
from tests.vectors.generate import FILES, HERE, generate, read
from tests.vectors.verify import verify, verify_kex, verify_packet

ENTRIES = [pytest.param(name, entry, id=entry["name"]) for name in FILES for entry in read(name)]


@pytest.mark.parametrize("name", FILES)
def test_the_generator_gives_the_file(name: str) -> None:
    assert generate(name) == (HERE / name).read_text()


@pytest.mark.parametrize("name", FILES)
def test_every_entry_is_computed_and_named_once(name: str) -> None:
    entries = read(name)
    assert {entry["origin"] for entry in entries} == {"computed"}
    assert len({entry["name"] for entry in entries}) == len(entries)


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_asyncssh_agrees(name: str, entry: Vector) -> None:
    assert verify(name, entry)


@pytest.mark.parametrize("field", ["K_encoded", "H"])
def test_the_verifier_notices_a_wrong_exchange(field: str) -> None:
    entry = read("kex_vectors.json")[0]
    assert not verify_kex(entry | {field: "00" + entry[field]})


def test_the_verifier_notices_a_wrong_key() -> None:
    entry = read("kex_vectors.json")[0]
    keys = entry["keys"] | {"c2s": entry["keys"]["s2c"]}
    assert not verify_kex(entry | {"keys": keys})


def test_the_verifier_notices_a_wrong_signature() -> None:
    first, second = read("kex_vectors.json")[:2]
    with pytest.raises(KeyExchangeFailed):
        verify_kex(first | {"signature": second["signature"]})


@pytest.mark.parametrize("name", ["vectors.json", "vectors_ctr_etm.json"])
def test_the_verifier_notices_a_wrong_packet(name: str) -> None:
    for entry in read(name):
        wire = bytearray.fromhex(entry["wire"])
        wire[-1] ^= 1
        assert not verify_packet(entry | {"wire": wire.hex()})


@pytest.mark.parametrize("name", FILES)
def test_copies_equal_what_they_were_copied_from(name: str) -> None:
    """Inputs and results are those of the published folder, wherever that has the entry."""
    outside = folder()
    if outside is None:
        pytest.skip(f"{VARIABLE} names no folder with the published vectors")
    theirs = {entry["name"]: entry for entry in json.loads((outside / name).read_text())}
    for entry in read(name):
        original = theirs.get(entry["name"], entry)
        assert original["origin"] == "computed"
        assert {field: original[field] for field in entry} == entry
    # Those made from another project's packets stay outside; ours of that kind start from our own.
    missing = [e for n, e in theirs.items() if e["origin"] == "computed" and n not in {o["name"] for o in read(name)}]
    assert all("derived_from" in entry for entry in missing)

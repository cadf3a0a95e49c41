"""The tree against an implementation that shares nothing with it, and against the vectors of RFC 6962's authors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.ledger import merkle
from kblockd.ledger.merkle import MerkleTree, ProofError
from kblockd.store.protocol import Key
from tests.unit.ledger import naive

leaf_lists = st.lists(st.binary(max_size=8), max_size=70)
# The eight leaves and their roots that certificate-transparency's own tests use.
KNOWN_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
KNOWN_ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def grown(leaves: list[bytes], group: int = 1) -> tuple[MerkleTree, dict[Key, bytes]]:
    """The tree after appending in groups, and the rows it made."""
    tree, rows = MerkleTree(), {}
    for first in range(0, len(leaves), group):
        rows.update(tree.append(first, leaves[first : first + group]))
    return tree, rows


def hashes(rows: dict[Key, bytes], ranges: list[merkle.Range]) -> list[bytes]:
    return [merkle.fold_right([rows[merkle.node_key(node)] for node in merkle.nodes_of(span)]) for span in ranges]


@pytest.mark.parametrize("size", range(9))
def test_known_roots(size: int) -> None:
    assert grown(KNOWN_LEAVES[:size])[0].root().hex() == KNOWN_ROOTS[size]


@given(leaf_lists, st.integers(1, 9))
def test_roots_of_every_size_can_be_had_later(leaves: list[bytes], group: int) -> None:
    tree, rows = grown(leaves, group)
    assert tree.root() == naive.mth(leaves)
    for size in range(len(leaves) + 1):
        assert tree.root_at(size, rows.get) == naive.mth(leaves[:size])


@given(leaf_lists, st.integers(1, 9), st.lists(st.binary(max_size=3), max_size=9))
def test_a_tree_that_is_taken_up_again_goes_on_alike(leaves: list[bytes], group: int, more: list[bytes]) -> None:
    tree, rows = grown(leaves, group)
    again = MerkleTree()
    again.restore(len(leaves), rows.get)
    assert again.append(len(leaves), more) == tree.append(len(leaves), more)
    assert again.root() == tree.root() == naive.mth(leaves + more)


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=70, unique=True), st.data())
def test_inclusion(leaves: list[bytes], data: st.DataObject) -> None:
    _, rows = grown(leaves)
    size = data.draw(st.integers(1, len(leaves)))
    index = data.draw(st.integers(0, size - 1))
    root = naive.mth(leaves[:size])
    path = hashes(rows, merkle.inclusion_ranges(index, size))
    assert path == naive.path(index, leaves[:size])
    leaf = merkle.leaf_hash(leaves[index])
    merkle.verify_inclusion(leaf, index, size, path, root)
    for wrong in _wrong_inclusions(leaf, index, size, path, root):
        with pytest.raises(ProofError):
            merkle.verify_inclusion(*wrong)


def _wrong_inclusions(leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> list[tuple]:
    wrong = [
        (bytes(32), index, size, path, root),
        (leaf, index, size, path, bytes(32)),
        (leaf, index, size, [*path, bytes(32)], root),
        (leaf, size, size, path, root),
        (leaf, -1, size, path, root),
    ]
    if path:
        wrong.append((leaf, index, size, path[:-1], root))
        wrong.append((leaf, index, size, [bytes(32), *path[1:]], root))
        wrong.append((leaf, index ^ 1, size, path, root))
    return wrong


@given(leaf_lists.filter(bool), st.data())
def test_consistency(leaves: list[bytes], data: st.DataObject) -> None:
    _, rows = grown(leaves)
    new = data.draw(st.integers(1, len(leaves)))
    old = data.draw(st.integers(1, new))
    old_root, new_root = naive.mth(leaves[:old]), naive.mth(leaves[:new])
    proof = hashes(rows, merkle.consistency_ranges(old, new))
    assert proof == (naive.proof(old, leaves[:new]) if old < new else [])
    merkle.verify_consistency(old, old_root, new, new_root, proof)
    wrong = [
        (old, bytes(32), new, new_root, proof),
        (old, old_root, new, bytes(32), proof),
        (old, old_root, new, new_root, [*proof, bytes(32)]),
        (new + 1, old_root, new, new_root, proof),
    ]
    if proof:
        wrong += [(old, old_root, new, new_root, proof[:-1]), (old, old_root, new, new_root, [])]
    for arguments in wrong:
        with pytest.raises(ProofError):
            merkle.verify_consistency(*arguments)


def test_every_tree_extends_the_empty_one() -> None:
    merkle.verify_consistency(0, merkle.EMPTY_ROOT, 5, bytes(32), [])
    assert merkle.consistency_ranges(0, 5) == []
    with pytest.raises(ProofError):
        merkle.verify_consistency(0, bytes(32), 5, bytes(32), [])


def test_proofs_for_what_is_not_there_are_refused() -> None:
    for index, size in ((0, 0), (3, 3), (-1, 3)):
        with pytest.raises(ValueError, match="is not in a tree"):
            merkle.inclusion_ranges(index, size)
    for old, new in ((4, 3), (-1, 3)):
        with pytest.raises(ValueError, match="cannot have grown"):
            merkle.consistency_ranges(old, new)


def test_records_must_follow_without_a_gap() -> None:
    tree = MerkleTree()
    tree.append(0, [b"a"])
    for first in (0, 2):
        with pytest.raises(ValueError, match="cannot follow"):
            tree.append(first, [b"b"])


@pytest.mark.parametrize(("node", "fault"), [(b"short", "has 5 bytes"), (None, "is missing")])
def test_missing_and_malformed_nodes_are_named(node: bytes | None, fault: str) -> None:
    _, rows = grown([b"a", b"b", b"c"])
    damaged = {**rows, ("node", 1, 0): node}
    with pytest.raises(ValueError, match=f"level 1, index 0 {fault}"):
        MerkleTree().restore(3, damaged.get)
    with pytest.raises(ValueError, match=f"level 1, index 0 {fault}"):
        MerkleTree().root_at(3, damaged.get)


def test_holds_compares_the_leaf_with_its_node() -> None:
    tree, rows = grown([b"a", b"b"])
    assert tree.holds(1, b"b", rows.get)
    assert not tree.holds(1, b"a", rows.get)
    assert not tree.holds(2, b"b", rows.get)

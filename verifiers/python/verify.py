"""Checks a running server with verifiers that were written by others: aics-tlog (Python 3.12 or newer) and scitt-cose.

EVIDENCE_URL is the address of the API, and EVIDENCE_API_KEY a key of a reader of the organization acme.
"""

import os
import urllib.request

from aics_tlog import checkpoint, hashing, note, tree
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from scitt_cose.receipt import verify_receipt

API = os.environ["EVIDENCE_URL"]
KEY = os.environ["EVIDENCE_API_KEY"]


def get(path):
    request = urllib.request.Request(f"{API}/ledger/{path}", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def main():
    signed = get("acme/checkpoint")
    origin = signed.split(b"\n")[0].decode()
    keys = [line for line in get("keys").decode().splitlines() if line.startswith(f"{origin}+")]
    key = note.parse_vkey(keys[0])

    result = checkpoint.verify_checkpoint(note.parse_note(signed), key, expected_origin=origin)
    assert result.ok, result
    for at in range(len(origin) + 2, signed.index(b"\n\n")):
        try:
            accepted = checkpoint.verify_checkpoint(note.parse_note(changed(signed, at)), key).ok
        except ValueError:
            accepted = False
        assert not accepted, f"byte {at} of the checkpoint was changed, and it is accepted"

    leaves = []
    size = int(signed.split(b"\n")[1])
    first = 0
    while first < size:
        count = min(256, size - first)
        suffix = "" if count == 256 else f".p/{count}"
        tile = get(f"acme/tile/entries/{first // 256:03}{suffix}")
        while tile:
            length = int.from_bytes(tile[:2], "big")
            leaves.append(tile[2 : 2 + length])
            tile = tile[2 + length :]
        first += count
    assert len(leaves) == size, (len(leaves), size)

    public = Ed25519PublicKey.from_public_bytes(key.public_key)
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for index in range(0, size, 7):
        leaf = leaves[index]
        lines = get(f"acme/proof/{index}").decode().split("\n\n", 1)
        path = [note.b64_decode(line) for line in lines[0].splitlines() if " " not in line and "/tlog-proof" not in line]
        cp, _ = checkpoint.checkpoint_from_note(lines[1])
        included = tree.verify_inclusion(hashing.leaf_hash(leaf), index, cp.size, path, cp.root)
        assert included, f"entry {index} is not accepted by aics-tlog"
        assert not tree.verify_inclusion(hashing.leaf_hash(b"another"), index, cp.size, path, cp.root)

        receipt = get(f"acme/proof/{index}?format=cose")
        result = verify_receipt(receipt, leaf_entry_hex=leaf.hex(), log_public_key_pem=pem)
        assert result.ok and result.leaf_index == index, (index, result.errors)
        assert result.issuer == origin, result
        for at in range(len(receipt)):
            other = verify_receipt(changed(receipt, at), leaf_entry_hex=leaf.hex(), log_public_key_pem=pem)
            # A receipt is signed for a root, and another size may lead to the same root (RFC 9942).
            same = (other.root, other.leaf_index) == (result.root, result.leaf_index)
            assert not other.ok or same, f"byte {at} of a receipt was changed, and it is accepted"
        other = verify_receipt(receipt, leaf_entry_hex=b"another".hex(), log_public_key_pem=pem)
        assert not other.ok, "a receipt is accepted for another leaf"
    print(f"aics-tlog and scitt-cose accept {size} entries, and no change")


main()

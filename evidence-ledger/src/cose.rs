//! Inclusion proofs as COSE receipts (RFC 9942, with the verifiable data structure `RFC9162_SHA256`).

use coset::cbor::value::Value;
use coset::{CborSerializable, CoseSign1, CoseSign1Builder, HeaderBuilder, TaggedCborSerializable, iana};

use crate::Hash;
use crate::note::{NoteSigner, VerifierKey};
use crate::proof::root_of_inclusion;

pub use coset::CoseError;

/// The header parameter with the verifiable data structure (RFC 9942 §2).
const VDS: i64 = 395;
/// The header parameter with the proofs.
const VDP: i64 = 396;
/// `RFC9162_SHA256`: the tree of RFC 6962.
const RFC9162_SHA256: i64 = 1;
/// The header parameter with the claims of a CBOR Web Token (RFC 9597), which RFC 9943 §6 asks of receipts.
const CWT_CLAIMS: i64 = 15;
/// The claim that names the issuer: the log.
const ISSUER: i64 = 1;
/// The claim that names the subject: the index of the entry, in decimal digits.
const SUBJECT: i64 = 2;
/// The key of inclusion proofs in [`VDP`].
const INCLUSION: i64 = -1;

/// Returns the receipt for leaf `index` of the tree of `size` leaves with this root, signed with Ed25519. The root is
/// detached: verifiers compute it from the leaf. The key id is the text `name+id` of the signer's [`VerifierKey`].
///
/// # Errors
/// The numbers are beyond those of CBOR, or the encoder failed.
pub fn receipt(
    signer: &NoteSigner,
    index: u64,
    size: u64,
    path: &[Hash],
    root: Hash,
) -> Result<Vec<u8>, coset::CoseError> {
    let path = path.iter().map(|hash| Value::Bytes(hash.as_bytes().to_vec())).collect();
    let proof = Value::Array(vec![size.into(), index.into(), Value::Array(path)]).to_vec()?;
    let proofs = Value::Map(vec![(INCLUSION.into(), Value::Array(vec![Value::Bytes(proof)]))]);
    let (log, entry) = (signer.verifier().name().to_owned(), index.to_string());
    let claims = Value::Map(vec![(ISSUER.into(), log.into()), (SUBJECT.into(), entry.into())]);
    let protected = HeaderBuilder::new()
        .algorithm(iana::Algorithm::EdDSA)
        .key_id(key_id(signer.verifier()))
        .value(CWT_CLAIMS, claims)
        .value(VDS, RFC9162_SHA256.into())
        .build();
    let receipt = CoseSign1Builder::new()
        .protected(protected)
        .unprotected(HeaderBuilder::new().value(VDP, proofs).build())
        .create_detached_signature(root.as_bytes(), b"", |bytes| signer.sign_bytes(bytes).to_vec())
        .build();
    receipt.to_tagged_vec()
}

/// Returns the key id of receipts that this key verifies: its text without the key itself.
fn key_id(key: &VerifierKey) -> Vec<u8> {
    format!("{}+{:08x}", key.name(), u32::from_be_bytes(key.id())).into_bytes()
}

/// Returns whether this is a receipt for the leaf with this hash, signed by this key: its index and the size of the tree.
/// Of several proofs in a receipt, the first counts.
#[must_use]
pub fn verify_receipt(receipt: &[u8], leaf: Hash, key: &VerifierKey) -> Option<(u64, u64)> {
    let receipt = CoseSign1::from_tagged_slice(receipt).ok()?;
    let protected = &receipt.protected.header;
    let value = |header: &coset::Header, label: i64| {
        let found = header.rest.iter().find(|(known, _)| *known == coset::Label::Int(label));
        found.map(|(_, value)| value.clone())
    };
    let is_known = protected.alg == Some(coset::Algorithm::Assigned(iana::Algorithm::EdDSA))
        && value(protected, VDS) == Some(RFC9162_SHA256.into())
        && protected.crit.is_empty();
    if !is_known {
        return None;
    }
    let proofs = value(&receipt.unprotected, VDP)?.into_map().ok()?;
    let (_, proofs) = proofs.into_iter().find(|(label, _)| *label == INCLUSION.into())?;
    let proof = proofs.into_array().ok()?.into_iter().next()?.into_bytes().ok()?;
    let [size, index, path] = Value::from_slice(&proof).ok()?.into_array().ok()?.try_into().ok()?;
    let number = |value: Value| u64::try_from(value.into_integer().ok()?).ok();
    let (size, index) = (number(size)?, number(index)?);
    let path = path.into_array().ok()?.into_iter().map(|hash| hash.into_bytes().ok()?.try_into().ok());
    let path = path.map(|hash| hash.map(Hash::from_bytes)).collect::<Option<Vec<_>>>()?;
    let root = root_of_inclusion(leaf, index, size, &path)?;
    let verify = |signature: &[u8], bytes: &[u8]| {
        let signature = signature.try_into().map_err(|_| ())?;
        if key.verify_bytes(bytes, signature) { Ok(()) } else { Err(()) }
    };
    receipt.verify_detached_signature(root.as_bytes(), b"", verify).ok().map(|()| (index, size))
}

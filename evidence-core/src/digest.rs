//! SHA-256 of contents, as the lower-case hex that the API speaks.

use sha2::{Digest, Sha256};

/// The SHA-256 of `bytes`, 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex_pair(*byte)).map(char::from).collect()
}

/// The two lower-case hex digits of a byte.
pub(crate) fn hex_pair(byte: u8) -> [u8; 2] {
    [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_of_abc() {
        let digest = super::sha256_hex(b"abc");
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

//! SHA-256 of contents, as lower-case hex as in the API.

use sha2::Sha256;

/// Returns the SHA-256 of `bytes` as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&<Sha256 as sha2::Digest>::digest(bytes))
}

/// Computes the SHA-256 of content that arrives in chunks.
#[derive(Debug, Clone, Default)]
pub struct Digest(Sha256);

impl Digest {
    /// Adds the next chunk.
    pub fn update(&mut self, piece: &[u8]) {
        sha2::Digest::update(&mut self.0, piece);
    }

    /// Returns the digest of all chunks as 64 lower-case hex digits.
    pub fn finish(self) -> String {
        hex(&sha2::Digest::finalize(self.0))
    }
}

/// Returns `bytes` as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex_pair(*byte)).map(char::from).collect()
}

/// Returns the two lower-case hex digits of a byte.
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
        let mut pieces = super::Digest::default();
        [b"a".as_slice(), b"", b"bc"].into_iter().for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.finish(), digest);
    }
}

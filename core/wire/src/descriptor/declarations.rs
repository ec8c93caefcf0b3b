//! Digests of a set's declarations, 32 bytes per type, with which two sets can be compared type by type.

use super::Descriptors;
use super::canonical;
use crate::digest::Sha256;

type Row = ([u8; HALF], [u8; HALF]);
const HALF: usize = 16;

/// The digests of declarations, sorted by the digests of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    rows: Vec<Row>,
}

impl Declarations {
    /// The number of declared types.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if no types are declared.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if a type named `name` is declared: a message, a map entry or an enum.
    pub fn declares(&self, name: &str) -> bool {
        self.find(&half(name.as_bytes())).is_some()
    }

    fn find(&self, name: &[u8; HALF]) -> Option<&[u8; HALF]> {
        let at = self.rows.binary_search_by_key(&name, |(name, _)| name).ok()?;
        self.rows.get(at).map(|(_, declared)| declared)
    }
}

impl Descriptors {
    /// The digests of the types that the set itself declares.
    pub fn declarations(&self) -> Declarations {
        let mut rows: Vec<Row> = self.declared().map(|(name, declared)| (half(name.as_bytes()), declared)).collect();
        rows.sort_unstable();
        Declarations { rows }
    }

    /// The first type by name that `others` declare differently; None when no declaration differs. Types of
    /// `google.protobuf` are not compared, because each set contains those of the compiler that made it.
    pub fn differing(&self, others: &Declarations) -> Option<&str> {
        let differs = |name: &str, declared: &[u8; HALF]| {
            !name.starts_with("google.protobuf.")
                && others.find(&half(name.as_bytes())).is_some_and(|other| other != declared)
        };
        self.declared().filter(|(name, declared)| differs(name, declared)).map(|(name, _)| name).min()
    }

    fn declared(&self) -> impl Iterator<Item = (&str, [u8; HALF])> {
        let messages = self.messages.iter().filter(|message| message.own);
        let messages = messages.map(|message| (message.name.as_str(), half(&self.declaration(message))));
        let enums = self.enums.iter().filter(|each| each.own);
        messages.chain(enums.map(|each| (each.name.as_str(), half(&canonical::enumeration("", each)))))
    }
}

/// The first half of the SHA-256 of `bytes`.
fn half(bytes: &[u8]) -> [u8; HALF] {
    let mut digest = Sha256::default();
    digest.update(bytes);
    digest.digest().first_chunk().copied().unwrap_or_default()
}

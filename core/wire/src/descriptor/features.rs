//! The features of protobuf editions; proto2 and proto3 are treated as sets of default features.

use super::invalid;
use crate::error::Result;
use crate::fields::Fields;
use crate::header::Wire;

/// The features that affect reading, showing and writing, with the numbers of `FeatureSet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) presence: u64,
    pub(super) enum_type: u64,
    pub(super) repeated: u64,
    pub(super) utf8: u64,
    pub(super) encoding: u64,
}

pub(super) const EXPLICIT: u64 = 1;
pub(super) const IMPLICIT: u64 = 2;
pub(super) const REQUIRED: u64 = 3;
pub(super) const OPEN: u64 = 1;
pub(super) const CLOSED: u64 = 2;
pub(super) const PACKED: u64 = 1;
pub(super) const EXPANDED: u64 = 2;
pub(super) const VERIFY: u64 = 2;
pub(super) const UNVERIFIED: u64 = 3;
pub(super) const DELIMITED: u64 = 2;

const PREFIXED: u64 = 1;
const EDITION_2023: u64 = 1000;
const EDITION_2024: u64 = 1001;

/// The syntax of a file, which determines the default features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Proto2,
    Proto3,
    Editions,
}

impl Syntax {
    pub(super) fn of(syntax: &str, edition: u64) -> Result<Self> {
        match (syntax, edition) {
            ("" | "proto2", _) => Ok(Self::Proto2),
            ("proto3", _) => Ok(Self::Proto3),
            ("editions", EDITION_2023 | EDITION_2024) => Ok(Self::Editions),
            ("editions", _) => Err(invalid(format!("the edition {edition} is unknown"))),
            _ => Err(invalid(format!("the syntax {} is unknown", super::shown(syntax)))),
        }
    }

    /// The default features, which options may override.
    pub(super) fn defaults(self) -> Features {
        match self {
            Self::Proto2 => Features {
                presence: EXPLICIT,
                enum_type: CLOSED,
                repeated: EXPANDED,
                utf8: UNVERIFIED,
                encoding: PREFIXED,
            },
            Self::Proto3 => {
                Features { presence: IMPLICIT, enum_type: OPEN, repeated: PACKED, utf8: VERIFY, encoding: PREFIXED }
            }
            Self::Editions => {
                Features { presence: EXPLICIT, enum_type: OPEN, repeated: PACKED, utf8: VERIFY, encoding: PREFIXED }
            }
        }
    }
}

impl Features {
    /// These features, overridden by the features in the serialized `FeatureSet` `set`.
    pub(super) fn with(mut self, set: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(set, 0, 16);
        while let Some(field) = fields.next_field()? {
            if field.header.wire != Wire::Varint || field.header.value == 0 {
                continue;
            }
            let slot = match field.header.number {
                1 => &mut self.presence,
                2 => &mut self.enum_type,
                3 => &mut self.repeated,
                4 => &mut self.utf8,
                5 => &mut self.encoding,
                _ => continue,
            };
            *slot = field.header.value;
        }
        Ok(self)
    }
}

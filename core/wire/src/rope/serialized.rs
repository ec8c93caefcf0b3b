//! Serialized ropes.

use super::{Piece, Rope, RopeBuilder, SourceId};
use crate::error::{Result, WireError};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::varint;

impl Rope {
    /// Appends the serialized rope: the number of pieces, then each piece. A piece begins with a varint
    /// `2·len + is_extent`. An extent continues with its source and offset as varints, and a literal with its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::write(self.piece_count() as u64, out);
        for piece in self.pieces() {
            varint::write(piece.len() << 1 | u64::from(matches!(piece, Piece::Extent { .. })), out);
            match piece {
                Piece::Extent { source, offset, .. } => {
                    varint::write(u64::from(source.0), out);
                    varint::write(offset, out);
                }
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
            }
        }
    }

    /// Reads a rope that [`Rope::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>, limits: &Limits) -> Result<Self> {
        let mut builder = RopeBuilder::new(limits);
        for _ in 0..reader.varint()? {
            let at = reader.offset();
            let head = reader.varint()?;
            let len = head >> 1;
            if head & 1 == 0 {
                builder.literal(reader.take(len)?);
            } else {
                let source = u32::try_from(reader.varint()?);
                let source =
                    source.map_err(|_| WireError::corrupt(at, "a saved byte range names an invalid source"))?;
                let offset = reader.varint()?;
                if offset.checked_add(len).is_none() {
                    return Err(WireError::corrupt(at, "a saved byte range extends past 2^64"));
                }
                builder.extent(SourceId(source), offset, len);
            }
            builder.check()?;
        }
        Ok(builder.finish())
    }
}

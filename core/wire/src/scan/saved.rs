//! The serialized scan, which another process can continue.
//!
//! It consists of `pslscan1`, a fingerprint of the schema, the scanner's numbers and frames, the index so far, and the
//! CRC-32C of all bytes before. Only the version that wrote a scan can read it. After an error, the caller starts a new
//! scan.

use std::sync::Arc;

use super::{Frame, Scanner};
use crate::error::{Kind, Result, WireError};
use crate::index::Builder;
use crate::index::saved::{blob, small, taken};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::schema::{Schema, TypeId};
use crate::varint;

const MAGIC: &[u8; 8] = b"pslscan1";

impl Scanner {
    /// Serializes the scan for [`Scanner::load`]; fails with an `Unsupported` error if the scan has failed.
    pub fn save(&self) -> Result<Vec<u8>> {
        if self.failed {
            return Err(WireError::new(Kind::Unsupported, "this scan has failed; start again"));
        }
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&fingerprint(&self.schema).to_le_bytes());
        for value in [self.floor, self.position, self.skip, self.hash_left, self.need as u64] {
            varint::write(value, &mut out);
        }
        blob(&self.pending, &mut out);
        varint::write(self.frames.len() as u64, &mut out);
        self.frames.iter().for_each(|frame| save_frame(frame, &mut out));
        self.builder.save(&mut out);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        Ok(out)
    }

    /// Restores a scan that [`Scanner::save`] wrote, for a message of type `root` of the same `schema`.
    pub fn load(saved: &[u8], schema: Arc<Schema>, root: Option<TypeId>, limits: Limits) -> Result<Self> {
        let (body, sum) =
            saved.split_last_chunk::<4>().ok_or_else(|| WireError::corrupt(0, "this is not a saved scan"))?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(WireError::new(Kind::Checksum, "a saved scan fails its checksum").at(0));
        }
        let mut reader = Reader::new(body, 0);
        if reader.take(8)? != MAGIC || reader.u32()? != fingerprint(&schema) {
            return Err(WireError::new(
                Kind::Unsupported,
                "the scan was saved by another program or with another schema",
            ));
        }
        let mut scanner = Self::new(schema, root, reader.varint()?, limits)?;
        (scanner.position, scanner.skip) = (reader.varint()?, reader.varint()?);
        (scanner.hash_left, scanner.need) = (reader.varint()?, small(&mut reader)? as usize);
        scanner.pending = taken(&mut reader)?.to_vec();
        scanner.frames.clear();
        for _ in 0..reader.varint()? {
            scanner.frames.push(load_frame(&mut reader)?);
        }
        scanner.builder = Builder::load(&mut reader, scanner.position, &limits)?;
        reader.finish("a saved scan")?;
        if scanner.fits_together(root) {
            Ok(scanner)
        } else {
            Err(WireError::corrupt(0, "this is not a valid saved scan"))
        }
    }

    /// True if the loaded numbers are consistent, so that arithmetic on them stays within bounds.
    fn fits_together(&self, root: Option<TypeId>) -> bool {
        let nested = self.frames.windows(2).all(|pair| matches!(pair, [outer, inner] if inner.end <= outer.end));
        let known = |frame: &Frame| frame.type_id.is_none_or(|id| self.schema.message(id).is_some());
        let placed = |frame: &Frame| frame.start <= frame.content && frame.content <= self.position.min(frame.end);
        self.frames.first().is_some_and(|frame| frame.type_id == root && frame.end == u64::MAX)
            && self.frames.last().is_some_and(|frame| self.position <= frame.end)
            && self.frames.iter().all(|frame| known(frame) && placed(frame))
            && nested
            && self.frames.len() == self.builder.depth()
            && self.skip <= self.position
            && self.hash_left <= self.skip
    }
}

fn save_frame(frame: &Frame, out: &mut Vec<u8>) {
    let plus = |value: Option<u32>| value.map_or(0, |value| u64::from(value) + 1);
    let Frame { number, start, content, end, group, .. } = *frame;
    let numbers = [u64::from(number), start, content, end, u64::from(group)];
    for value in [plus(frame.type_id), plus(frame.key)].into_iter().chain(numbers) {
        varint::write(value, out);
    }
}

fn load_frame(reader: &mut Reader<'_>) -> Result<Frame> {
    let mut optional = || {
        let value = reader.varint()?.checked_sub(1).map(u32::try_from).transpose();
        value.map_err(|_| WireError::corrupt(0, "a number in the saved scan has more than 32 bits"))
    };
    let (type_id, key) = (optional()?, optional()?);
    let number = small(reader)?;
    let (start, content, end) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(Frame { type_id, number, start, content, end, group: reader.varint()? != 0, key })
}

/// A checksum that identifies a schema, because a saved scan refers to types by number.
fn fingerprint(schema: &Schema) -> u32 {
    let mut sum = 0;
    for message in (0..).map_while(|id| schema.message(id)) {
        sum = crc32c::crc32c_append(sum, message.name.as_bytes());
        sum = crc32c::crc32c_append(sum, &[0, u8::from(message.map_entry)]);
        for field in message.fields() {
            sum = crc32c::crc32c_append(sum, field.name.as_bytes());
            sum = crc32c::crc32c_append(sum, &[0, field.kind as u8, u8::from(field.repeated)]);
            for value in [field.number, field.oneof, field.target] {
                sum = crc32c::crc32c_append(sum, &value.to_le_bytes());
            }
        }
    }
    sum
}

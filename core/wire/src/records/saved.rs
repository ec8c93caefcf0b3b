//! A saved index: `pslrecs1`; the framing; count, end and size; the fault; the points of a compressed file; the rows;
//! the codes; the CRC-32C of all bytes before. Each row is stored as its differences from the previous row.

use super::framing::Framing;
use super::index::{Fault, Index, Row, broken};
use crate::error::{Kind, Result, WireError};
use crate::inflate::Points;
use crate::reader::Reader;
use crate::varint;

const MAGIC: &[u8; 8] = b"pslrecs1";

impl Index {
    /// The saved index, which [`Index::load`] reads.
    pub fn save(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(self.framing.number());
        [self.count, self.end, self.size].iter().for_each(|value| varint::write(*value, &mut out));
        varint::write(u64::from(self.fault.is_some()), &mut out);
        if let Some(fault) = &self.fault {
            varint::write(fault.offset, &mut out);
            varint::write(fault.message.len() as u64, &mut out);
            out.extend_from_slice(fault.message.as_bytes());
        }
        if self.framing.wrapper().is_some() {
            self.points.save(&mut out);
        }
        varint::write(self.rows.len() as u64, &mut out);
        let mut last = Row::default();
        for row in &self.rows {
            let differences = [row.first - last.first, row.offset - last.offset, row.at - last.at];
            differences.iter().for_each(|difference| varint::write(*difference, &mut out));
            last = *row;
        }
        out.extend_from_slice(&self.codes);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Reads an index that [`Index::save`] wrote; fails with a `Checksum` error if it is damaged.
    pub fn load(saved: &[u8]) -> Result<Self> {
        let (body, sum) = saved.split_last_chunk::<4>().ok_or_else(broken)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(WireError::new(Kind::Checksum, "a saved index of records fails its checksum").at(0));
        }
        let mut reader = Reader::new(body, 0);
        if reader.take(8)? != MAGIC {
            return Err(WireError::new(
                Kind::Unsupported,
                "this is not an index of records, or it has another version",
            ));
        }
        let framing = Framing::numbered(reader.u8()?).ok_or_else(broken)?;
        let (count, end, size) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let fault = if reader.varint()? == 0 { None } else { Some(fault(&mut reader)?) };
        let packed = framing.wrapper().is_some();
        let points = if packed { Points::load(&mut reader)? } else { Points::default() };
        let rows = rows(&mut reader)?;
        let codes = reader.rest().to_vec();
        let index = Self { framing, count, end, size, fault, points, rows, codes };
        if index.fits_together() { Ok(index) } else { Err(broken()) }
    }

    /// True if the numbers are consistent; the codes are checked when they are decoded.
    fn fits_together(&self) -> bool {
        let starts = self.rows.first().is_none_or(|row| row.first == 0);
        let last = self.rows.last().copied().unwrap_or_default();
        let ends = last.at <= self.codes.len() as u64 && last.offset <= self.end && self.end <= self.size;
        let rising = self.rows.windows(2).all(|pair| matches!(pair, [before, after] if before.first < after.first));
        let counted = if self.rows.is_empty() { self.count == 0 } else { last.first < self.count };
        starts && ends && rising && counted
    }
}

fn fault(reader: &mut Reader<'_>) -> Result<Fault> {
    let offset = reader.varint()?;
    let len = reader.varint()?;
    let message = std::str::from_utf8(reader.take(len)?).map_err(|_| broken())?;
    Ok(Fault { offset, message: message.to_owned() })
}

fn rows(reader: &mut Reader<'_>) -> Result<Vec<Row>> {
    let (mut rows, mut last) = (Vec::new(), Row::default());
    for _ in 0..reader.varint()? {
        let mut next = |value: u64| reader.varint().and_then(|more| value.checked_add(more).ok_or_else(broken));
        last = Row { first: next(last.first)?, offset: next(last.offset)?, at: next(last.at)? };
        rows.push(last);
    }
    Ok(rows)
}

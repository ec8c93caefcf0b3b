//! The serialized [`Builder`], with which another process can continue a scan.

use super::Builder;
use super::open_node::{OpenField, OpenNode};
use crate::entry::Entry;
use crate::error::{Result, WireError};
use crate::header::Wire;
use crate::index::layout::{NodeRecord, Record};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::varint;

impl Builder {
    /// Number of open nodes.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Appends the serialized builder; [`Builder::load`] reads it.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        varint::write(self.spent, out);
        varint::write(self.types.len() as u64, out);
        self.types.iter().for_each(|name| blob(name.as_bytes(), out));
        list(&self.nodes, out);
        list(&self.blocks, out);
        blob(&self.entries, out);
        list(&self.fields, out);
        list(&self.field_blocks, out);
        list(&self.keys, out);
        varint::write(self.open.len() as u64, out);
        self.open.iter().for_each(|node| node.save(out));
    }

    /// Restores the builder that [`Builder::save`] wrote, for a scan that has read `seen` bytes.
    pub(crate) fn load(reader: &mut Reader<'_>, seen: u64, limits: &Limits) -> Result<Self> {
        let mut builder = Self::new(limits);
        builder.spent = reader.varint()?;
        for _ in 0..reader.varint()? {
            let at = reader.offset();
            let name = std::str::from_utf8(taken(reader)?);
            builder.type_number(
                name.map_err(|_| WireError::corrupt(at, "the name of a type in the saved scan is not UTF-8"))?,
            );
        }
        builder.nodes = listed(reader)?;
        builder.blocks = listed(reader)?;
        builder.entries = taken(reader)?.to_vec();
        builder.fields = listed(reader)?;
        builder.field_blocks = listed(reader)?;
        builder.keys = listed(reader)?;
        for _ in 0..reader.varint()? {
            builder.open.push(OpenNode::load(reader, seen)?);
        }
        Ok(builder)
    }
}

impl OpenNode {
    fn save(&self, out: &mut Vec<u8>) {
        varint::write(u64::from(self.id), out);
        self.record.write(out);
        varint::write(self.entries_mark as u64, out);
        list(&self.blocks, out);
        blob(&self.block, out);
        varint::write(self.block_start, out);
        varint::write(u64::from(self.block_count), out);
        varint::write(u64::from(self.last_number), out);
        out.push(u8::from(self.run.is_some()));
        if let Some(run) = &self.run {
            save_entry(run, out);
        }
        varint::write(self.fields.len() as u64, out);
        for field in &self.fields {
            field.record.write(out);
            list(&field.blocks, out);
            varint::write(field.keys.len() as u64, out);
            field.keys.iter().for_each(|key| out.extend_from_slice(&key.to_le_bytes()));
        }
    }

    fn load(reader: &mut Reader<'_>, seen: u64) -> Result<Self> {
        let id = small(reader)?;
        let record = NodeRecord::read(reader)?;
        let mark = reader.varint()?;
        let mark = usize::try_from(mark)
            .map_err(|_| WireError::corrupt(reader.offset(), "a position in the saved scan is out of bounds"))?;
        let mut node = Self::new(id, record, mark);
        node.blocks = listed(reader)?;
        node.block = taken(reader)?.to_vec();
        node.block_start = reader.varint()?;
        node.block_count = small(reader)?;
        node.last_number = small(reader)?;
        node.run = if reader.u8()? == 0 { None } else { Some(load_entry(reader, seen)?) };
        for _ in 0..reader.varint()? {
            let field = load_field(reader)?;
            // Fields are opened in the saved order, so they get the saved places.
            let number = field.record.number;
            *node.field(number) = field;
        }
        Ok(node)
    }
}

fn load_field(reader: &mut Reader<'_>) -> Result<OpenField> {
    let (record, blocks) = (Record::read(reader)?, listed(reader)?);
    let keys = words(reader)?;
    Ok(OpenField { record, blocks, keys })
}

fn words(reader: &mut Reader<'_>) -> Result<Vec<u64>> {
    let count = reader.varint()?;
    let bytes = reader.take(count.saturating_mul(8))?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn save_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.push(entry.wire as u8);
    let node = entry.node.map_or(0, |node| u64::from(node) + 1);
    let Entry { number, start, content, content_end, end, count, .. } = *entry;
    for value in [u64::from(number), start, content, content_end, end, count, node] {
        varint::write(value, out);
    }
}

fn load_entry(reader: &mut Reader<'_>, seen: u64) -> Result<Entry> {
    let wire = reader.u8()?;
    let wire = Wire::from_number(wire)
        .ok_or_else(|| WireError::corrupt(reader.offset(), "the saved scan has an unknown wire type"));
    let (wire, number) = (wire?, small(reader)?);
    let (start, content) = (reader.varint()?, reader.varint()?);
    let (content_end, end, count) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let node = small(reader)?.checked_sub(1);
    let ordered = start <= content && content <= content_end && content_end <= end && end <= seen;
    if !ordered || count > end - start {
        return Err(WireError::corrupt(reader.offset(), "an entry of a saved scan is out of bounds"));
    }
    Ok(Entry { number, wire, start, content, content_end, end, count, node })
}

fn list<R: Record>(records: &[R], out: &mut Vec<u8>) {
    varint::write(records.len() as u64, out);
    records.iter().for_each(|record| record.write(out));
}

fn listed<R: Record>(reader: &mut Reader<'_>) -> Result<Vec<R>> {
    let count = reader.varint()?;
    let mut part = reader.sub(count.saturating_mul(R::WIDTH as u64))?;
    (0..count).map(|_| R::read(&mut part)).collect()
}

/// Appends the length of `bytes`, followed by `bytes`.
pub(crate) fn blob(bytes: &[u8], out: &mut Vec<u8>) {
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Reads the bytes that [`blob`] wrote.
pub(crate) fn taken<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = reader.varint()?;
    reader.take(len)
}

/// Reads a varint; fails if it does not fit in 32 bits.
pub(crate) fn small(reader: &mut Reader<'_>) -> Result<u32> {
    let at = reader.offset();
    u32::try_from(reader.varint()?)
        .map_err(|_| WireError::corrupt(at, "a number in the saved scan has more than 32 bits"))
}

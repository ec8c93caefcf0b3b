//! Entries of a bundle's index, decoded from serialized `BundleEntryProto` messages.

use crate::error::Result;
use crate::fields::Fields;
use crate::reader::Reader;

/// Most elements of a tensor; with this limit, its bytes fit in 63 bits for every type.
const MOST_ELEMENTS: u64 = 1 << 58;

/// The range in one dimension: start and length; None as the length means the whole dimension.
pub type Extent = (i64, Option<i64>);

/// A decoded entry of the index, for a tensor or a slice of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The number of the tensor's type in `DataType`.
    pub dtype: i32,
    /// The dimensions as stored, which only `shape` checks.
    pub dims: Vec<i64>,
    /// True if the entry declares an unknown rank.
    pub unknown_rank: bool,
    /// The number of the shard.
    pub shard: i32,
    /// The offset of the tensor in its shard.
    pub offset: i64,
    /// The size of the tensor in its shard in bytes.
    pub size: i64,
    /// The masked CRC-32C of the tensor's bytes, if the writer stored it.
    pub crc: Option<u32>,
    /// The slices in which the tensor is stored; empty for a tensor that is stored as a whole.
    pub slices: Vec<Vec<Extent>>,
}

impl Placed {
    /// The dimensions; None if the rank is unknown or a dimension is invalid.
    pub fn shape(&self) -> Option<&[i64]> {
        let known = !self.unknown_rank && self.dims.iter().all(|dim| *dim >= 0);
        let empty = self.dims.contains(&0);
        let mut dims = self.dims.iter().map(|dim| if empty { 0 } else { dim.unsigned_abs() });
        let count = dims.try_fold(1u64, u64::checked_mul);
        count.filter(|count| known && *count <= MOST_ELEMENTS).map(|_| self.dims.as_slice())
    }

    /// Decodes the `BundleEntryProto` in `bytes`, in which groups may be nested `depth` deep.
    pub(super) fn decode(bytes: &[u8], depth: u32) -> Result<Self> {
        let mut placed = Self::default();
        Decoder { depth }.entry(Reader::new(bytes, 0), &mut placed)?;
        Ok(placed)
    }
}

/// A decoder of entries. Nearly all their tags have one byte, so fields are first matched by that byte.
struct Decoder {
    depth: u32,
}

impl Decoder {
    /// Decodes a `BundleEntryProto`.
    fn entry(&self, mut reader: Reader<'_>, placed: &mut Placed) -> Result<()> {
        while !reader.is_empty() {
            let at = reader.clone();
            match reader.u8()? {
                0x08 => placed.dtype = reader.varint()? as i32,
                0x12 => self.shape(sub(&mut reader)?, placed)?,
                0x18 => placed.shard = reader.varint()? as i32,
                0x20 => placed.offset = reader.varint()? as i64,
                0x28 => placed.size = reader.varint()? as i64,
                0x35 => placed.crc = Some(reader.u32()?),
                0x3a => placed.slices.push(self.slice(sub(&mut reader)?)?),
                _ => reader = self.skip(at)?,
            }
        }
        Ok(())
    }

    /// Decodes a `TensorShapeProto`.
    fn shape(&self, mut reader: Reader<'_>, placed: &mut Placed) -> Result<()> {
        while !reader.is_empty() {
            let at = reader.clone();
            match reader.u8()? {
                0x12 => placed.dims.push(self.extent(sub(&mut reader)?)?.0),
                0x18 => placed.unknown_rank = reader.varint()? != 0,
                _ => reader = self.skip(at)?,
            }
        }
        Ok(())
    }

    /// Decodes a `TensorSliceProto`.
    fn slice(&self, mut reader: Reader<'_>) -> Result<Vec<Extent>> {
        let mut slice = Vec::new();
        while !reader.is_empty() {
            let at = reader.clone();
            match reader.u8()? {
                0x0a => slice.push(self.extent(sub(&mut reader)?)?),
                _ => reader = self.skip(at)?,
            }
        }
        Ok(slice)
    }

    /// Decodes a `TensorSliceProto.Extent`, or a `TensorShapeProto.Dim`, whose field 1 is a number too.
    fn extent(&self, mut reader: Reader<'_>) -> Result<Extent> {
        let mut extent = (0, None);
        while !reader.is_empty() {
            let at = reader.clone();
            match reader.u8()? {
                0x08 => extent.0 = reader.varint()? as i64,
                0x10 => extent.1 = Some(reader.varint()? as i64),
                _ => reader = self.skip(at)?,
            }
        }
        Ok(extent)
    }

    /// Skips the field at the position of `reader`; the returned reader is at the next field.
    fn skip<'a>(&self, mut reader: Reader<'a>) -> Result<Reader<'a>> {
        let start = reader.offset();
        let field = Fields::new(reader.clone().rest(), start, self.depth).next_field()?;
        reader.take(field.map_or(start, |field| field.end) - start)?;
        Ok(reader)
    }
}

fn sub<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>> {
    let len = reader.varint()?;
    reader.sub(len)
}

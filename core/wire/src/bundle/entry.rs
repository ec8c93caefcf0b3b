//! Entries of a bundle's index: `BundleEntryProto`, decoded on the wire.

use crate::error::Result;
use crate::fields::Fields;
use crate::reader::Reader;

/// Largest element count: the bytes still fit into 63 bits, whatever the type.
const MOST_ELEMENTS: u64 = 1 << 58;

/// Part of a dimension: start and length; None stands for the whole dimension.
pub type Extent = (i64, Option<i64>);

/// A decoded entry of the index: a tensor, or a slice of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Number of the tensor's type, as in `DataType`.
    pub dtype: i32,
    /// Dimensions as stored, not checked; `shape` checks them.
    pub dims: Vec<i64>,
    /// True if the entry declares an unknown rank.
    pub unknown_rank: bool,
    /// Number of the shard.
    pub shard: i32,
    /// Offset of the tensor in its shard.
    pub offset: i64,
    /// Bytes of the tensor in its shard.
    pub size: i64,
    /// Masked CRC-32C of the tensor's bytes, if the writer stored one.
    pub crc: Option<u32>,
    /// Slices that the tensor is stored in; empty for a tensor that is stored whole.
    pub slices: Vec<Vec<Extent>>,
}

impl Placed {
    /// The dimensions; None for an unknown rank and for invalid ones.
    pub fn shape(&self) -> Option<&[i64]> {
        let known = !self.unknown_rank && self.dims.iter().all(|dim| *dim >= 0);
        let empty = self.dims.contains(&0);
        let mut dims = self.dims.iter().map(|dim| if empty { 0 } else { dim.unsigned_abs() });
        let count = dims.try_fold(1u64, u64::checked_mul);
        count.filter(|count| known && *count <= MOST_ELEMENTS).map(|_| self.dims.as_slice())
    }

    /// The `BundleEntryProto` in `bytes`, in which groups may be nested `depth` deep.
    pub(super) fn decode(bytes: &[u8], depth: u32) -> Result<Self> {
        let mut placed = Self::default();
        Decoder { depth }.entry(Reader::new(bytes, 0), &mut placed)?;
        Ok(placed)
    }
}

/// Decoder of entries. Nearly all of their tags have one byte, so fields are matched by that byte first.
struct Decoder {
    depth: u32,
}

impl Decoder {
    /// A `BundleEntryProto`.
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

    /// A `TensorShapeProto`.
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

    /// A `TensorSliceProto`.
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

    /// A `TensorSliceProto.Extent`; also a `TensorShapeProto.Dim`, whose field 1 is a number too.
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

    /// Steps over the field at which `reader` stands; the returned reader stands at the next field.
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

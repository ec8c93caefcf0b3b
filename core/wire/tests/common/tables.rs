//! Tables, written anew: with every checksum as it should be, whatever the blocks hold.

use wire::table;

use super::Bytes;

/// Keys and values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The entries of a table.
pub fn entries(data: &[u8]) -> Entries {
    let mut all = Vec::new();
    table::walk(&Bytes(data), |entry| {
        all.push((entry.key.to_vec(), entry.value.to_vec()));
        Ok(())
    })
    .unwrap();
    all
}

/// Layout of a written table.
pub struct Shape {
    /// Entries of a block.
    pub block: usize,
    /// True to store keys without the prefix that they share with the key before.
    pub share: bool,
    /// True to compress blocks with Snappy.
    pub snappy: bool,
}

/// A table of `entries`; `damage` sees the content of each block before it is sealed.
pub fn table(entries: &Entries, shape: &Shape, mut damage: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut index = Vec::new();
    for block in entries.chunks(shape.block.max(1)) {
        let mut content = block_of(block, shape.share);
        damage(&mut content);
        index.push((block.last().unwrap().0.clone(), append(&mut out, content, shape.snappy)));
    }
    let meta = append(&mut out, block_of(&[], false), false);
    let mut content = block_of(&index, false);
    damage(&mut content);
    let place = append(&mut out, content, shape.snappy);
    let mut footer = [meta, place].concat();
    footer.resize(table::FOOTER as usize - table::MAGIC.len(), 0);
    out.extend(footer);
    out.extend(table::MAGIC);
    out
}

fn block_of(entries: &[(Vec<u8>, Vec<u8>)], share: bool) -> Vec<u8> {
    let (mut out, mut last): (Vec<u8>, &[u8]) = (Vec::new(), b"");
    for (key, value) in entries {
        let shared = if share { key.iter().zip(last).take_while(|(a, b)| a == b).count() } else { 0 };
        for number in [shared, key.len() - shared, value.len()] {
            wire::varint::write(number as u64, &mut out);
        }
        out.extend_from_slice(&key[shared..]);
        out.extend_from_slice(value);
        last = key;
    }
    out.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    out
}

/// Puts a block behind the others and seals it; its handle.
fn append(out: &mut Vec<u8>, content: Vec<u8>, snappy: bool) -> Vec<u8> {
    let mut content = if snappy { snap::raw::Encoder::new().compress_vec(&content).unwrap() } else { content };
    let mut handle = Vec::new();
    wire::varint::write(out.len() as u64, &mut handle);
    wire::varint::write(content.len() as u64, &mut handle);
    content.push(u8::from(snappy));
    let sum = crc32c::crc32c(&content).rotate_right(15).wrapping_add(0xa282_ead8);
    out.extend(content);
    out.extend(sum.to_le_bytes());
    handle
}

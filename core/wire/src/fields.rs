//! The fields of a message in memory, one after the other; a group is skipped as a whole.

use crate::error::{Kind, Result, WireError};
use crate::header::{self, Header, Wire, past_parent, stray_end};

/// An iterator over the fields of a message in memory.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
    depth: u32,
}

/// One field of a message in memory.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<'a> {
    /// The tag, and the length or value.
    pub header: Header,
    /// The offset of the field's tag.
    pub start: u64,
    /// The content; for groups, the bytes between the two tags.
    pub content: &'a [u8],
    /// The offset after the field's last byte.
    pub end: u64,
}

impl<'a> Fields<'a> {
    /// The fields of the message `bytes`, whose first byte is at the offset `base`; groups may be nested `depth` deep.
    pub fn new(bytes: &'a [u8], base: u64, depth: u32) -> Self {
        Self { bytes, at: 0, base, depth }
    }

    /// The next field, or None at the end.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<InMemory<'a>>> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let start = self.base.saturating_add(self.at as u64);
        let header = self.head(start)?;
        if header.wire == Wire::EndGroup {
            return Err(stray_end(header.number, start));
        }
        let from = self.at + usize::from(header.head_len);
        let (until, end) = if header.wire == Wire::Group {
            self.at = from;
            self.skip_group(header.number, self.depth)?
        } else {
            let end = usize::try_from(header.content_len).ok().and_then(|len| from.checked_add(len));
            let end = end.filter(|end| *end <= self.bytes.len()).ok_or_else(|| {
                let left = self.bytes.len().saturating_sub(from);
                past_parent(&header, left as u64, start)
            })?;
            (end, end)
        };
        let content = self.bytes.get(from..until).unwrap_or_default();
        self.at = end;
        Ok(Some(InMemory { header, start, content, end: self.base.saturating_add(end as u64) }))
    }

    /// Like [`Fields::next_field`], but may skip fields other than `wanted`. It can skip fields with a tag of one byte
    /// and a length of one or two bytes.
    #[inline]
    pub fn next_but(&mut self, wanted: u32) -> Result<Option<InMemory<'a>>> {
        self.next_among(1u16.checked_shl(wanted).unwrap_or(0))
    }

    /// Like [`Fields::next_but`] for several numbers: those whose bits are set in `wanted`, and all numbers from 16 on.
    #[inline]
    pub(crate) fn next_among(&mut self, wanted: u16) -> Result<Option<InMemory<'a>>> {
        while let Some([tag @ 0x08..0x80, len, more]) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let step = match (tag & 7, len, more) {
                (0, 0..0x80, _) => 2,
                (2, 0..0x80, _) => usize::from(*len) + 2,
                (2, _, 0..0x80) => usize::from(*len & 0x7f) + (usize::from(*more) << 7) + 3,
                _ => break,
            };
            if wanted >> (tag >> 3) & 1 > 0 || self.bytes.len() - self.at < step {
                break;
            }
            self.at += step;
        }
        self.next_field()
    }

    fn head(&self, start: u64) -> Result<Header> {
        let header = header::read(self.bytes.get(self.at..).unwrap_or_default(), start)?;
        header.ok_or_else(|| WireError::corrupt(start, "a field is truncated: its message ends inside it"))
    }

    /// Skips the rest of group `number`, whose content begins here; returns start and end of its end tag.
    fn skip_group(&mut self, number: u32, depth: u32) -> Result<(usize, usize)> {
        let mut open = vec![number];
        loop {
            let start = self.base.saturating_add(self.at as u64);
            if self.at >= self.bytes.len() {
                return Err(WireError::corrupt(start, format!("the group of field {number} has no end")));
            }
            let header = self.head(start)?;
            let begin = self.at;
            match header.wire {
                Wire::Group => {
                    open.push(header.number);
                    if open.len() > depth as usize {
                        return Err(
                            WireError::new(Kind::Limit, format!("groups are nested more than {depth} deep")).at(start)
                        );
                    }
                }
                Wire::EndGroup if open.pop() != Some(header.number) => return Err(stray_end(header.number, start)),
                _ => {}
            }
            let left = (self.bytes.len() - begin) as u64;
            let len = header.size().filter(|len| *len <= left).ok_or_else(|| past_parent(&header, left, start))?;
            self.at = begin + len as usize;
            if open.is_empty() {
                return Ok((begin, self.at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Wire, Vec<u8>)>> {
        let mut fields = Fields::new(bytes, 100, 3);
        let mut out = Vec::new();
        while let Some(field) = fields.next_field()? {
            out.push((field.header.number, field.header.wire, field.content.to_vec()));
        }
        Ok(out)
    }

    #[test]
    fn reads_every_wire_type() {
        let bytes = [
            &[0x08, 0x96, 0x01][..],
            &[0x11, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1a, 0x02, b'h', b'i'],
            &[0x23, 0x08, 0x01, 0x2b, 0x2c, 0x24],
            &[0x35, 9, 9, 9, 9],
        ];
        let expected = vec![
            (1, Wire::Varint, vec![0x96, 1]),
            (2, Wire::Fixed64, vec![1, 2, 3, 4, 5, 6, 7, 8]),
            (3, Wire::Len, b"hi".to_vec()),
            (4, Wire::Group, vec![0x08, 0x01, 0x2b, 0x2c]),
            (6, Wire::Fixed32, vec![9; 4]),
        ];
        assert_eq!(all(&bytes.concat()).unwrap(), expected);
    }

    #[test]
    fn steps_over_what_is_not_wanted_and_no_further() {
        let long = [&[0x1a, 0xac, 0x02][..], &[7; 300]].concat();
        for (plain, end) in [(&[0x10, 5][..], 102), (&[0x1a, 2, 8, 8], 104), (&long, 403), (&[0x1a, 0x81, 0, 8], 104)] {
            let bytes = [plain, &[0x08, 9]].concat();
            let mut fields = Fields::new(&bytes, 100, 3);
            let found = fields.next_but(1).unwrap().unwrap();
            assert_eq!((found.header.number, found.header.value, found.start), (1, 9, end));
            let cut = &bytes[..plain.len() - 1];
            assert_eq!(Fields::new(cut, 100, 3).next_but(1).unwrap_err().offset(), Some(100), "{cut:?}");
        }
    }

    #[test]
    fn says_where_it_breaks() {
        let cases: [(&[u8], u64); 8] = [
            (&[0x08, 0x01, 0x00], 102),
            (&[0x08, 0x01, 0x0e], 102),
            (&[0x0a, 0x05, 1, 2], 100),
            (&[0x08, 0xff], 100),
            (&[0x0b, 0x08, 0x01], 103),
            (&[0x0b, 0x14], 101),
            (&[0x0c], 100),
            (&[0x0b, 0x13, 0x1b, 0x23, 0x24, 0x1c, 0x14, 0x0c], 103),
        ];
        for (bytes, offset) in cases {
            assert_eq!(all(bytes).unwrap_err().offset(), Some(offset), "{bytes:?}");
        }
    }
}

//! Counts the parts that files declare before any part is kept. A part may have only two bytes in the file, but takes a
//! hundred bytes of memory.

use super::files::{File, each, in_file};
use super::scopes::MAX_DEPTH;
use super::{Bounds, too_many};
use crate::error::Result;
use crate::header::Wire;

/// Role of a field in a declaration.
#[derive(Clone, Copy)]
enum Part {
    /// A declaration that contains other declarations.
    Declares(Declaration),
    /// A declaration whose content is not counted.
    Value,
    Options,
    Import,
}

#[derive(Clone, Copy)]
enum Declaration {
    File,
    Message,
    Enum,
    /// A field or an extension.
    Field,
    Oneof,
}

/// The numbers of parts by kind; none may exceed the bound.
struct Counts<'b> {
    bounds: &'b Bounds,
    names: usize,
    options: usize,
    imports: usize,
}

/// Fails when all files together have more parts than the bounds allow.
pub(super) fn check(files: &[File<'_>], bounds: &Bounds) -> Result<()> {
    let mut counts = Counts { bounds, names: 0, options: 0, imports: 0 };
    files.iter().try_for_each(|file| {
        counts.below(Declaration::File, file.bytes, MAX_DEPTH + 1).map_err(|error| in_file(file.name, error))
    })
}

impl Counts<'_> {
    /// Counts the parts in `bytes`, the content of a declaration. Declarations may be nested `depth` levels deep; a
    /// deeper one is rejected before its content is examined.
    fn below(&mut self, declaration: Declaration, bytes: &[u8], depth: usize) -> Result<()> {
        each(bytes, |field| {
            let part = if field.header.wire == Wire::Len { declaration.part(field.header.number) } else { None };
            let Some(part) = part else { return Ok(()) };
            let count = match part {
                Part::Declares(_) | Part::Value => &mut self.names,
                Part::Options => &mut self.options,
                Part::Import => &mut self.imports,
            };
            *count += 1;
            if *count > self.bounds.parts {
                return Err(too_many(self.bounds));
            }
            match part {
                Part::Declares(inner) if depth > 0 => self.below(inner, field.content, depth - 1),
                _ => Ok(()),
            }
        })
    }
}

impl Declaration {
    fn part(self, number: u32) -> Option<Part> {
        Some(match (self, number) {
            (Self::File, 3) => Part::Import,
            (Self::File, 4) | (Self::Message, 3) => Part::Declares(Self::Message),
            (Self::File, 5) | (Self::Message, 4) => Part::Declares(Self::Enum),
            (Self::File, 7) | (Self::Message, 2 | 6) => Part::Declares(Self::Field),
            (Self::Message, 8) => Part::Declares(Self::Oneof),
            (Self::Enum, 2) => Part::Value,
            (Self::File | Self::Field, 8) | (Self::Message, 7) | (Self::Enum, 3) | (Self::Oneof, 2) => Part::Options,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const BOUNDS: Bounds = Bounds { files: 2, parts: 8 };

    fn counted(bytes: &[u8]) -> Option<Kind> {
        check(&[File { name: "a.proto", bytes, own: true }], &BOUNDS).err().map(|error| error.kind())
    }

    /// A serialized length-delimited field with this content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    #[test]
    fn parts_of_every_sort_count() {
        let message = |inner: u8| field(4, &[inner << 3 | 2, 0].repeat(8));
        for bytes in [
            [0x1a, 0].repeat(9),
            [0x22, 0].repeat(9),
            [0x2a, 0].repeat(9),
            [0x3a, 0].repeat(9),
            [0x42, 0].repeat(9),
            message(2),
            message(3),
            message(4),
            message(6),
            message(8),
            field(5, &[0x12, 0].repeat(8)),
            field(5, &[0x1a, 0].repeat(9)),
            field(4, &field(2, &[0x42, 0].repeat(9))),
            field(4, &field(8, &[0x12, 0].repeat(9))),
        ] {
            assert_eq!(counted(&bytes), Some(Kind::Limit), "{bytes:?}");
            assert_eq!(counted(&bytes[..2]), if bytes[1] == 0 { None } else { Some(Kind::Syntax) }, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_part_does_not_count() {
        assert_eq!(counted(&[0x32, 0].repeat(100)), None);
        assert_eq!(counted(&[0x20, 0].repeat(100)), None);
    }

    #[test]
    fn all_files_count_together() {
        let bytes = [0x22, 0].repeat(5);
        let file = || File { name: "a.proto", bytes: &bytes, own: true };
        assert!(check(&[file()], &BOUNDS).is_ok());
        assert!(check(&[file(), file()], &BOUNDS).is_err());
    }

    #[test]
    fn messages_nested_without_end_are_left_to_those_who_name_them() {
        let deep = (0..40).fold(Vec::new(), |inner, _| field(3, &inner));
        assert_eq!(counted(&field(4, &deep)), Some(Kind::Limit));
        let roomy = Bounds { files: 1, parts: 100 };
        assert!(check(&[File { name: "", bytes: &field(4, &deep), own: true }], &roomy).is_ok());
    }
}

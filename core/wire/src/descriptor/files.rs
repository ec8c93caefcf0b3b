//! The files of a set, completed by well-known files that the set imports but does not contain.

use std::collections::{HashMap, HashSet};

use super::{Bounds, invalid, shown, too_many};
use crate::error::{Kind, Result, WireError};
use crate::fields::{Fields, InMemory};
use crate::header::Wire;

/// A file to be read.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: &'a [u8],
    /// True if the file belongs to the set, false if it comes from the library.
    pub(super) own: bool,
}

const WELL_KNOWN: &str = "google/protobuf/";

/// Most nested groups among the unknown fields of a descriptor.
const GROUPS: u32 = 32;

/// The files of `data`; each file occurs once.
pub(super) fn own<'a>(data: &'a [u8], bounds: &Bounds) -> Result<Vec<File<'a>>> {
    let own = named(data, true, bounds)?;
    if own.is_empty() {
        return Err(invalid("the descriptor set contains no files; create it with protoc --descriptor_set_out"));
    }
    let mut known: HashMap<&str, &[u8]> = HashMap::new();
    let mut files = Vec::new();
    for file in own {
        match known.insert(file.name, file.bytes) {
            None => files.push(file),
            Some(same) if same == file.bytes => {}
            Some(_) => {
                return Err(invalid(format!(
                    "the descriptor set contains two different files named {}",
                    shown(file.name)
                )));
            }
        }
    }
    Ok(files)
}

/// `files`, and those files of `library` that they import but do not contain.
pub(super) fn complete<'a>(files: Vec<File<'a>>, library: &'a [u8], bounds: &Bounds) -> Result<Vec<File<'a>>> {
    let mut shelf: HashMap<&str, File<'a>> = HashMap::new();
    for file in named(library, false, bounds)?.into_iter().filter(|file| file.name.starts_with(WELL_KNOWN)) {
        shelf.insert(file.name, file);
    }
    import(files, &mut shelf, bounds)
}

fn import<'a>(mut files: Vec<File<'a>>, shelf: &mut HashMap<&str, File<'a>>, bounds: &Bounds) -> Result<Vec<File<'a>>> {
    let mut there: HashSet<&str> = files.iter().map(|file| file.name).collect();
    let (mut at, mut imports) = (0, 0);
    while let Some((importer, bytes)) = files.get(at).map(|file| (file.name, file.bytes)) {
        for name in each_import(bytes, importer)? {
            imports += 1;
            if imports > bounds.parts {
                return Err(too_many(bounds));
            }
            if there.contains(name) {
                continue;
            }
            let Some(file) = shelf.remove(name) else {
                let hint = "create the set with protoc --include_imports";
                let (who, what) = (shown(importer), shown(name));
                return Err(invalid(format!("{who} imports {what}, which is not in the descriptor set; {hint}")));
            };
            there.insert(file.name);
            files.push(file);
        }
        at += 1;
    }
    Ok(files)
}

fn each_import<'a>(bytes: &'a [u8], importer: &str) -> Result<Vec<&'a str>> {
    let mut names = Vec::new();
    each(bytes, |field| {
        if (field.header.number, field.header.wire) == (3, Wire::Len) {
            names.push(text(&field)?);
        }
        Ok(())
    })
    .map_err(|error| in_file(importer, error))?;
    Ok(names)
}

/// The files of a set with their names, in order.
fn named<'a>(data: &'a [u8], own: bool, bounds: &Bounds) -> Result<Vec<File<'a>>> {
    let (mut files, mut count) = (Vec::new(), 0usize);
    let taken = each(data, |field| {
        if (field.header.number, field.header.wire) != (1, Wire::Len) {
            return Ok(());
        }
        count += 1;
        if count > bounds.files {
            return Ok(());
        }
        let mut name = "";
        each(field.content, |inner| {
            if (inner.header.number, inner.header.wire) == (1, Wire::Len) {
                name = text(&inner)?;
            }
            Ok(())
        })
        .map_err(|error| error.shifted(field.end - field.content.len() as u64))?;
        files.push(File { name, bytes: field.content, own });
        Ok(())
    });
    taken.map_err(|error| {
        let text = format!("not a serialized google.protobuf.FileDescriptorSet: {}", error.message());
        WireError::new(Kind::Syntax, text).at(error.offset().unwrap_or_default())
    })?;
    if count > bounds.files {
        let text = format!("the descriptor set has {count} files; at most {} are allowed", bounds.files);
        return Err(WireError::new(Kind::Limit, text));
    }
    Ok(files)
}

/// Calls `take` with each field of the message `bytes`.
pub(super) fn each<'a>(bytes: &'a [u8], mut take: impl FnMut(InMemory<'a>) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(bytes, 0, GROUPS);
    while let Some(field) = fields.next_field()? {
        take(field)?;
    }
    Ok(())
}

/// The content of a string field.
pub(super) fn text<'a>(field: &InMemory<'a>) -> Result<&'a str> {
    std::str::from_utf8(field.content)
        .map_err(|_| WireError::corrupt(field.start, "a name in the descriptor set is not UTF-8"))
}

/// Adds the name of the file to `error`; a `Limit` error passes unchanged.
pub(super) fn in_file(name: &str, error: WireError) -> WireError {
    if error.kind() == Kind::Limit {
        return error;
    }
    let reason: String = error.message().chars().take(300).collect();
    invalid(format!("the file {} is not valid: {reason}", shown(name)))
}

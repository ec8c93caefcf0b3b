//! Views of records: only one part of each record.

use std::ops::Range;
use std::sync::Arc;

use super::output::{Form, Reading, put, take};
use crate::document::Document;
use crate::error::{Kind, Result, WireError};
use crate::index::Index;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::path::Path;
use crate::rope::{Rope, RopeBuilder};
use crate::scan::{DEFAULT_FLOOR, Scanner};
use crate::schema::{Schema, TypeId};
use crate::source::{RopeSource, Source};

/// The part of each record that a view contains.
#[derive(Debug)]
pub struct RecordView<'a> {
    /// The types of the records.
    pub schema: &'a Arc<Schema>,
    /// The type of a record; None when it is unknown.
    pub root: Option<TypeId>,
    /// The path of the part; the empty path means the whole record.
    pub path: &'a Path,
    /// The paths below the part that are kept; None means all.
    pub mask: Option<&'a Mask>,
    /// Size in bytes beyond which fields are left out.
    pub omit: Option<u64>,
}

impl Reading {
    /// The part `view` of each record of `ranges`, in `form`; a record without the part gives an empty record.
    ///
    /// All records are read. Fails with a `Limit` error for more than `limits.held` bytes of records, and with a
    /// `NotFound` error when no record has the part.
    pub fn views(&self, source: &dyn Source, ranges: &[Range<u64>], form: Form, view: &RecordView<'_>) -> Result<Rope> {
        let mut out = RopeBuilder::new(self.limits());
        let mut room = self.limits().held;
        let (mut found, mut missing, mut empty) = (false, None, None);
        for range in ranges {
            let mut number = range.start;
            while number < range.end {
                source.carry_on()?;
                let batch = self.read(source, number..range.end, BATCH)?;
                for record in batch.records() {
                    take(&mut room, record.len() as u64)?;
                    // Millions of empty records take only a few bytes and all have the same part, so it is computed
                    // once.
                    if let Some(part) = empty.as_ref().filter(|_| record.is_empty()) {
                        put(source, part, form, &mut room, &mut out)?;
                        number += 1;
                        continue;
                    }
                    let part = match seen(record, view, self.limits()) {
                        Err(error) if error.kind() == Kind::NotFound => {
                            missing.get_or_insert(error);
                            Rope::default()
                        }
                        other => {
                            found = true;
                            other.map_err(|error| of_record(&error, number))?
                        }
                    };
                    put(source, &part, form, &mut room, &mut out)?;
                    number += 1;
                    if record.is_empty() {
                        empty = Some(part);
                    }
                }
                self.give_back(batch);
            }
        }
        match missing.filter(|_| !found) {
            Some(error) => Err(error),
            None => Ok(out.finish()),
        }
    }
}

/// Bytes of records that are read at a time.
const BATCH: u64 = 1 << 20;

/// The part `view` of `record`, as one literal.
fn seen(record: &[u8], view: &RecordView<'_>, limits: &Limits) -> Result<Rope> {
    let mut scanner = Scanner::new(Arc::clone(view.schema), view.root, DEFAULT_FLOOR, *limits)?;
    scanner.feed(record)?;
    let index = Index::open(Arc::new(scanner.finish(record.len() as u64)?))?;
    let (whole, none): (_, [&dyn Source; 0]) = (Rope::literal(record), []);
    let source = RopeSource::new(&whole, &none);
    let document = Document::new(&index, view.schema, &source, *limits)?;
    let target = document.resolve(view.path)?;
    let rope = document.view(&target, view.mask, view.omit)?;
    let sources: [&dyn Source; 1] = [&source];
    let len = usize::try_from(rope.len()).unwrap_or(usize::MAX);
    Ok(Rope::literal(&RopeSource::new(&rope, &sources).read(0, len)?))
}

fn of_record(error: &WireError, number: u64) -> WireError {
    WireError::new(error.kind(), format!("record {number}: {}", error.message()))
}

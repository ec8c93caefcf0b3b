//! A proto with its index: messages as protobuf means them, found without reading more than the bytes concerned.
//!
//! A message may lie in several pieces, because a singular field that occurs many times is merged. A piece that the
//! index has no node for is scanned on demand.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use crate::entry::{Entry, NodeId};
use crate::error::{Kind, Result, WireError};
use crate::header::{self, Fields, Wire};
use crate::index::{Entries, Index};
use crate::key::{self, Key};
use crate::limits::Limits;
use crate::schema::{FieldKind, Schema, TypeId};
use crate::source::Source;

/// Reads are made at least this large, since the next one is often close by.
const WINDOW: usize = 64 << 10;
/// A run of scalars stands for one entry up to this many bytes.
const RUN_BYTES: u64 = 4096;
/// Entries that a scan on demand may give: more than fit under any sensible floor.
const SCANNED_ENTRIES: usize = 1 << 22;

/// A proto that can be asked for its parts.
pub struct Document<'a> {
    /// Where its parts lie.
    pub index: &'a Index,
    /// What its parts mean.
    pub schema: &'a Schema,
    /// What it will not do.
    pub limits: Limits,
    source: &'a dyn Source,
    window: RefCell<(u64, Vec<u8>)>,
}

/// A message: its type, and the pieces that merge into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type, where known.
    pub type_id: Option<TypeId>,
    /// Its pieces, in order. None for a message of which only the default is there.
    pub parts: Vec<Part>,
}

/// Elements of a repeated field or map, told by one of their fields.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The repeated field.
    pub number: u32,
    /// The type of its elements.
    pub type_id: Option<TypeId>,
    /// The field of theirs to look at.
    pub key: u32,
    /// What kind that field is.
    pub kind: FieldKind,
    /// What it must be.
    pub value: Key<'a>,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node of the index.
    Node(NodeId),
    /// The content that lies here, of this type, which the index has no node for.
    Span(Range<u64>, Option<TypeId>),
}

impl Part {
    /// The content of `entry`, a message of type `type_id`.
    pub fn of(entry: &Entry, type_id: Option<TypeId>) -> Self {
        entry.node.map_or_else(|| Self::Span(entry.content_span(), type_id), Self::Node)
    }
}

impl<'a> Document<'a> {
    /// The proto of `index`, whose bytes `source` has.
    pub fn new(index: &'a Index, schema: &'a Schema, source: &'a dyn Source, limits: Limits) -> Result<Self> {
        if index.size() != source.len() {
            let message = format!("the index is of a proto of {} bytes, the source has {}", index.size(), source.len());
            return Err(WireError::new(Kind::Corrupt, message));
        }
        Ok(Self { index, schema, limits, source, window: RefCell::default() })
    }

    /// The whole proto.
    pub fn root(&self) -> Result<Message> {
        let type_id = self.index.node(0)?.message_type(self.schema);
        Ok(Message { type_id, parts: vec![Part::Node(0)] })
    }

    /// The `len` bytes at `offset`.
    pub fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        if len > WINDOW / 2 {
            return self.source.read(offset, len);
        }
        let mut window = self.window.borrow_mut();
        let inside = |window: &(u64, Vec<u8>)| {
            let at = usize::try_from(offset.checked_sub(window.0)?).ok()?;
            window.1.get(at..at.checked_add(len)?).map(<[u8]>::to_vec)
        };
        if let Some(bytes) = inside(&window) {
            return Ok(Cow::Owned(bytes));
        }
        let more = usize::try_from(self.source.len().saturating_sub(offset)).unwrap_or(WINDOW);
        let bytes = self.source.read(offset, more.clamp(len, WINDOW.max(len)))?;
        *window = (offset, bytes.into_owned());
        inside(&window)
            .map(Cow::Owned)
            .ok_or_else(|| WireError::corrupt(offset, "the source gave fewer bytes than asked"))
    }

    /// The bytes of `span`, which is no longer than a window.
    pub fn read_span(&self, span: &Range<u64>) -> Result<Cow<'_, [u8]>> {
        let len = usize::try_from(span.end.saturating_sub(span.start));
        self.read(span.start, len.map_err(|_| WireError::corrupt(span.start, "a field is larger than memory"))?)
    }

    /// Where the content of `part` lies.
    pub fn span(&self, part: &Part) -> Result<Range<u64>> {
        match part {
            Part::Span(span, _) => Ok(span.clone()),
            Part::Node(id) => self.index.node(*id).map(|node| node.record.content..node.record.content_end),
        }
    }

    /// The fields of `part`, in order. Runs of scalars may stand as one.
    pub fn entries(&self, part: &Part) -> Result<PartEntries<'a>> {
        match part {
            Part::Node(id) => Ok(PartEntries::Indexed(self.index.node(*id)?.entries())),
            Part::Span(span, type_id) => {
                self.scan(span.clone(), *type_id).map(|entries| PartEntries::Scanned(entries.into_iter()))
            }
        }
    }

    /// The occurrences of field `number` in `part` from element `from` on, each with its position there, as long as
    /// `visit` says to go on. Runs come whole.
    pub fn visit(
        &self,
        part: &Part,
        number: u32,
        from: u64,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        if let Part::Node(id) = part {
            let node = self.index.node(*id)?;
            let Some(field) = node.field(number)? else { return Ok(()) };
            let mut occurrences = node.occurrences(&field, from)?;
            while let Some((ordinal, entry)) = occurrences.next()? {
                if !visit(ordinal, &entry)? {
                    break;
                }
            }
            return Ok(());
        }
        let mut ordinal = 0u64;
        for entry in self.entries(part)? {
            let entry = entry?;
            if entry.number != number {
                continue;
            }
            let at = ordinal;
            ordinal += entry.count;
            if ordinal > from && !visit(at, &entry)? {
                break;
            }
        }
        Ok(())
    }

    /// How often field `number` occurs in `part`.
    pub fn count(&self, part: &Part, number: u32) -> Result<u64> {
        if let Part::Node(id) = part {
            return Ok(self.index.node(*id)?.field(number)?.map_or(0, |field| field.count()));
        }
        let mut count = 0;
        self.visit(part, number, 0, &mut |_, entry| {
            count += entry.count;
            Ok(true)
        })?;
        Ok(count)
    }

    /// The occurrences that make up the singular field `number` of `message`: those that a oneof has not taken back.
    pub fn singular(&self, message: &Message, number: u32) -> Result<Vec<Entry>> {
        let oneof = self.schema.field(message.type_id, number).map_or(0, |field| field.oneof);
        let mut found = Vec::new();
        for part in &message.parts {
            if oneof == 0 {
                self.visit(part, number, 0, &mut |_, entry| {
                    found.push(*entry);
                    Ok(found.len() < SCANNED_ENTRIES)
                })?;
                continue;
            }
            for entry in self.entries(part)? {
                let entry = entry?;
                if entry.number == number {
                    found.push(entry);
                } else if self.schema.field(message.type_id, entry.number).is_some_and(|field| field.oneof == oneof) {
                    found.clear();
                }
            }
        }
        Ok(found)
    }

    /// The occurrence at position `ordinal` of field `number`; a run is taken apart.
    pub fn element(&self, message: &Message, number: u32, ordinal: u64) -> Result<Option<Entry>> {
        let mut before = 0u64;
        for part in &message.parts {
            let count = self.count(part, number)?;
            if ordinal - before >= count {
                before += count;
                continue;
            }
            let mut found = None;
            self.visit(part, number, ordinal - before, &mut |at, entry| {
                found = Some((at, *entry));
                Ok(false)
            })?;
            let Some((at, entry)) = found else { return Ok(None) };
            return self.of_run(&entry, ordinal - before - at).map(Some);
        }
        Ok(None)
    }

    /// The occurrence at position `at` of a run.
    pub fn of_run(&self, run: &Entry, at: u64) -> Result<Entry> {
        if run.count == 1 {
            return Ok(*run);
        }
        let bytes = self.read_span(&run.span())?;
        let mut fields = Fields::new(&bytes, run.start, self.limits.depth);
        for _ in 0..at {
            fields.next()?;
        }
        let field =
            fields.next()?.ok_or_else(|| WireError::corrupt(run.start, "a run of scalars is shorter than it was"))?;
        Ok(Entry::new(&field.header, field.start))
    }

    /// The entry of the map `field` of `message` with this key: the last one, which is the one that counts.
    pub fn map_entry(&self, message: &Message, wanted: &Wanted<'_>) -> Result<Option<(u64, Entry)>> {
        let mut found = None;
        let mut before = 0;
        for part in &message.parts {
            self.with_key(part, wanted, &mut |ordinal, entry| {
                found = Some((before + ordinal, *entry));
                Ok(true)
            })?;
            before += self.count(part, wanted.number)?;
        }
        Ok(found)
    }

    /// The first element of `message` that is `wanted`, and its position.
    pub fn element_where(&self, message: &Message, wanted: &Wanted<'_>) -> Result<Option<(u64, Entry)>> {
        let mut before = 0;
        for part in &message.parts {
            let mut first = None;
            self.with_key(part, wanted, &mut |ordinal, entry| {
                first = Some((before + ordinal, *entry));
                Ok(false)
            })?;
            if first.is_some() {
                return Ok(first);
            }
            before += self.count(part, wanted.number)?;
        }
        Ok(None)
    }

    /// The elements in `part` that are `wanted`: by the index's keys where it has them, one after the other where not.
    fn with_key(
        &self,
        part: &Part,
        wanted: &Wanted<'_>,
        visit: &mut dyn FnMut(u64, &Entry) -> Result<bool>,
    ) -> Result<()> {
        let mut matching = |ordinal: u64, entry: &Entry| -> Result<bool> {
            if entry.wire == Wire::Len && self.is_wanted(&Part::of(entry, wanted.type_id), wanted)? {
                return visit(ordinal, entry);
            }
            Ok(true)
        };
        if let Part::Node(id) = part {
            let node = self.index.node(*id)?;
            let Some(summary) = node.field(wanted.number)? else { return Ok(()) };
            let message = wanted.type_id.and_then(|id| self.schema.message(id));
            if summary.has_keys() && message.and_then(|message| message.key()) == Some(wanted.key) {
                for ordinal in node.with_key_hash(&summary, wanted.value.hash())? {
                    let found = node.occurrences(&summary, ordinal)?.next()?;
                    if let Some((at, entry)) = found
                        && !matching(at, &entry)?
                    {
                        break;
                    }
                }
                return Ok(());
            }
        }
        self.visit(part, wanted.number, 0, &mut matching)
    }

    fn is_wanted(&self, element: &Part, wanted: &Wanted<'_>) -> Result<bool> {
        let default = key::default_key(wanted.kind);
        let Some(entry) = self.last(element, wanted.key)? else { return Ok(default == wanted.value) };
        if let Key::Text(text) = wanted.value
            && text.len() as u64 != entry.content_len()
        {
            return Ok(false);
        }
        let bytes = self.read_span(&entry.span())?;
        let field = Fields::new(&bytes, entry.start, self.limits.depth).next()?;
        Ok(field.and_then(|field| key::of_field(wanted.kind, &field)).unwrap_or(default) == wanted.value)
    }

    /// The last occurrence of field `number` in `part`.
    fn last(&self, part: &Part, number: u32) -> Result<Option<Entry>> {
        let mut last = None;
        self.visit(part, number, 0, &mut |_, entry| {
            last = Some(*entry);
            Ok(true)
        })?;
        last.map(|run| self.of_run(&run, run.count - 1)).transpose()
    }

    /// The key of the element `entry`, by which people know it; `None` where its type has none or it is long.
    pub fn key_text(&self, entry: &Entry, type_id: TypeId, longest: u64) -> Result<Option<(FieldKind, Vec<u8>)>> {
        let Some(field) = self.schema.message(type_id).and_then(|message| message.field(message.key()?)) else {
            return Ok(None);
        };
        let last = self.last(&Part::of(entry, Some(type_id)), field.number)?;
        let Some(found) = last.filter(|found| found.content_len() <= longest) else { return Ok(None) };
        let bytes = self.read_span(&found.span())?;
        let in_memory = Fields::new(&bytes, found.start, self.limits.depth).next()?;
        Ok(match in_memory.and_then(|in_memory| key::of_field(field.kind, &in_memory)) {
            Some(Key::Text(text)) => Some((field.kind, text.to_vec())),
            Some(Key::Number(number)) => Some((field.kind, number.to_le_bytes().to_vec())),
            None => None,
        })
    }

    /// The fields at the top level of `span`, read as a message.
    fn scan(&self, span: Range<u64>, type_id: Option<TypeId>) -> Result<Vec<Entry>> {
        let mut scan = Shallow { entries: Vec::new(), open: Vec::new(), depth: self.limits.depth };
        let mut position = span.start;
        while position < span.end {
            let left = usize::try_from(span.end - position).unwrap_or(usize::MAX);
            let bytes = self.read(position, left.min(WINDOW / 2))?;
            let taken = scan.window(&bytes, position, span.end)?;
            position += taken;
            if scan.entries.len() > SCANNED_ENTRIES {
                let message =
                    "a message without index has too many fields to scan it here; give its type, or a smaller path";
                return Err(WireError::new(Kind::Limit, message).at(span.start));
            }
        }
        for entry in &mut scan.entries {
            entry.number = self.schema.fitted(type_id, entry.number, entry.wire);
        }
        match scan.open.first() {
            Some((number, start, _)) => {
                Err(WireError::corrupt(*start, format!("the group of field {number} has no end")))
            }
            None => Ok(scan.entries),
        }
    }
}

/// A scan of one level, window by window.
struct Shallow {
    entries: Vec<Entry>,
    /// Open groups: number, start, content.
    open: Vec<(u32, u64, u64)>,
    depth: u32,
}

impl Shallow {
    /// Takes the fields that begin in `bytes`, which lie at `position`; returns how far it came: past `bytes` when a
    /// field is longer.
    fn window(&mut self, bytes: &[u8], position: u64, end: u64) -> Result<u64> {
        let mut at = 0u64;
        while at < bytes.len() as u64 {
            let start = position + at;
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let Some(header) = header::read(rest, start)? else {
                let cut = start + rest.len() as u64 >= end;
                return if cut {
                    Err(WireError::corrupt(start, "a field is cut off at the end of its message"))
                } else {
                    Ok(at)
                };
            };
            let left = end - start;
            let len = header.len().filter(|len| *len <= left);
            let head = u64::from(header.head_len);
            let len = len.ok_or_else(|| header::past_parent(&header, left.saturating_sub(head), start))?;
            match header.wire {
                Wire::Group => {
                    self.open.push((header.number, start, start + head));
                    if self.open.len() > self.depth as usize {
                        let message = format!("groups are nested more than {} deep", self.depth);
                        return Err(WireError::new(Kind::Limit, message).at(start));
                    }
                }
                Wire::EndGroup => self.end_group(header.number, start, start + head)?,
                _ if self.open.is_empty() => self.push(Entry::new(&header, start)),
                _ => {}
            }
            at += len;
        }
        Ok(at)
    }

    fn end_group(&mut self, number: u32, content_end: u64, end: u64) -> Result<()> {
        match self.open.pop() {
            Some((open, start, content)) if open == number => {
                if self.open.is_empty() {
                    self.push(Entry {
                        number,
                        wire: Wire::Group,
                        start,
                        content,
                        content_end,
                        end,
                        count: 1,
                        node: None,
                    });
                }
                Ok(())
            }
            _ => Err(header::stray_end(number, content_end)),
        }
    }

    fn push(&mut self, entry: Entry) {
        let scalar = !matches!(entry.wire, Wire::Len | Wire::Group);
        match self.entries.last_mut() {
            Some(run)
                if scalar
                    && run.number == entry.number
                    && run.wire == entry.wire
                    && entry.end - run.start <= RUN_BYTES =>
            {
                (run.content_end, run.end) = (entry.end, entry.end);
                run.count += 1;
            }
            _ => self.entries.push(entry),
        }
    }
}

/// The fields of one piece of a message.
#[derive(Debug)]
pub enum PartEntries<'a> {
    /// As the index has them.
    Indexed(Entries<'a>),
    /// As a scan gave them.
    Scanned(std::vec::IntoIter<Entry>),
}

impl Iterator for PartEntries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        match self {
            Self::Indexed(entries) => entries.next(),
            Self::Scanned(entries) => entries.next().map(Ok),
        }
    }
}

//! On-demand reading: where the index has no node, only the few bytes that are needed are read and scanned.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::entry::{Entry, Stretch};
use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::header::{self, Wire};
use crate::limits::Limits;
use crate::schema::{Schema, TypeId};
use crate::source::Source;

/// Bytes to which a small read is enlarged, because the next read is often nearby.
const WINDOW: usize = 64 << 10;
/// Longest run of scalars in one entry, in bytes.
const RUN_BYTES: u64 = 4096;
/// Most entries of one on-demand scan; this is more than can be below any reasonable floor.
pub(crate) const SCANNED_ENTRIES: usize = 1 << 22;

/// A proto without an index.
pub struct OnDemand<'a> {
    /// The message types of the proto.
    pub schema: &'a Schema,
    /// Limits on the work.
    pub limits: Limits,
    source: &'a dyn Source,
    window: RefCell<(u64, Vec<u8>)>,
    scanned: RefCell<Option<Scanned>>,
    budget: Cell<Option<u64>>,
    /// How many stretches may still be kept.
    room: Cell<usize>,
}

/// The fields of a scanned message, with the message's range and type.
type Scanned = (Range<u64>, Option<TypeId>, Rc<[Entry]>);

impl<'a> OnDemand<'a> {
    /// Opens the proto in `source`; `schema` has its message types.
    pub fn new(schema: &'a Schema, source: &'a dyn Source, limits: Limits) -> Self {
        Self {
            schema,
            limits,
            source,
            window: RefCell::default(),
            scanned: RefCell::default(),
            budget: Cell::new(None),
            room: Cell::new(SCANNED_ENTRIES),
        }
    }

    /// Starts counting the steps of work, up to [`Limits::steps`].
    pub(crate) fn count_steps(&self) {
        self.budget.set(Some(self.limits.steps));
    }

    /// Counts `steps` of work and fails once they exceed the limit. Before `count_steps`, nothing is counted.
    pub(crate) fn spend(&self, steps: u64) -> Result<()> {
        let Some(left) = self.budget.get() else { return Ok(()) };
        self.budget.set(Some(left.saturating_sub(steps)));
        if steps <= left {
            return Ok(());
        }
        let limit = self.limits.steps;
        let message = format!(
            "these fields make more than {limit} steps of work, a step for each element and each selection it may be \
             of: name fewer fields, or fewer elements at a time, such as [0:10000]"
        );
        Err(WireError::new(Kind::Limit, message))
    }

    /// Fails when the work should be cancelled; see [`Source::carry_on`].
    pub fn carry_on(&self) -> Result<()> {
        self.source.carry_on()
    }

    /// The source of the bytes.
    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
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
            .ok_or_else(|| WireError::corrupt(offset, "the source returned fewer bytes than requested"))
    }

    /// The bytes of `span`, which must fit in memory.
    pub fn read_span(&self, span: &Range<u64>) -> Result<Cow<'_, [u8]>> {
        let len = usize::try_from(span.end.saturating_sub(span.start));
        self.read(span.start, len.map_err(|_| WireError::corrupt(span.start, "a field is larger than memory"))?)
    }

    /// The occurrence at position `at` of a run.
    pub fn of_run(&self, run: &Entry, at: u64) -> Result<Entry> {
        if run.count == 1 {
            return Ok(*run);
        }
        let bytes = self.read_span(&run.span())?;
        let mut fields = Fields::new(&bytes, run.start, self.limits.depth);
        for _ in 0..at {
            fields.next_field()?;
        }
        let field = fields
            .next_field()?
            .ok_or_else(|| WireError::corrupt(run.start, "the proto changed since it was indexed: open it again"))?;
        Ok(Entry::new(&field.header, field.start))
    }

    /// Like [`OnDemand::scan`], but keeps the result for the message that was scanned last.
    pub fn scanned(&self, span: Range<u64>, type_id: Option<TypeId>) -> Result<Rc<[Entry]>> {
        if let Some((known, of, entries)) = &*self.scanned.borrow()
            && (known, of) == (&span, &type_id)
        {
            return Ok(Rc::clone(entries));
        }
        let entries: Rc<[Entry]> = self.scan(span.clone(), type_id)?.into();
        self.spend(entries.len() as u64)?;
        *self.scanned.borrow_mut() = Some((span, type_id, Rc::clone(&entries)));
        Ok(entries)
    }

    /// The top-level fields of `span`, parsed as a message.
    pub fn scan(&self, span: Range<u64>, type_id: Option<TypeId>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.walk(&span, |found| {
            entries.append(found);
            if entries.len() <= SCANNED_ENTRIES {
                return Ok(());
            }
            let message =
                "the message is not indexed and has too many fields to scan; pass its type, or the path of a smaller part";
            Err(WireError::new(Kind::Limit, message).at(span.start))
        })?;
        for entry in &mut entries {
            entry.number = self.schema.fitted(type_id, entry.number, entry.wire);
        }
        Ok(entries)
    }

    /// The top-level fields of `span`, parsed as a message; None when the field number changes too often to keep them.
    /// Fails unless they end exactly at the end of `span`, because a truncated field would absorb later bytes.
    pub fn stretches(&self, span: &Range<u64>, type_id: Option<TypeId>) -> Result<Option<Vec<Stretch>>> {
        let (mut stretches, mut room, mut all) = (Vec::<Stretch>::new(), self.room.get(), true);
        self.walk(span, |found| {
            for entry in found.drain(..) {
                let number = self.schema.fitted(type_id, entry.number, entry.wire);
                match stretches.last_mut() {
                    Some(last) if last.number == number => last.span.end = entry.end,
                    _ if room > 0 => {
                        room -= 1;
                        stretches.push(Stretch { number, span: entry.span() });
                    }
                    _ => all = false,
                }
            }
            Ok(())
        })?;
        self.room.set(room);
        Ok(all.then_some(stretches))
    }

    /// Calls `each` with the top-level fields of `span`, one window at a time; `each` must drain the vector.
    fn walk(&self, span: &Range<u64>, mut each: impl FnMut(&mut Vec<Entry>) -> Result<()>) -> Result<()> {
        let mut scan = Shallow { entries: Vec::new(), open: Vec::new(), depth: self.limits.depth };
        let mut position = span.start;
        while position < span.end {
            let left = usize::try_from(span.end - position).unwrap_or(usize::MAX);
            let bytes = self.read(position, left.min(WINDOW / 2))?;
            let taken = scan.window(&bytes, position, span.end)?;
            position += taken;
            each(&mut scan.entries)?;
        }
        match scan.open.first() {
            Some((number, start, _)) => {
                Err(WireError::corrupt(*start, format!("the group of field {number} has no end")))
            }
            None => Ok(()),
        }
    }
}

/// A scan of one level of nesting, window by window.
struct Shallow {
    entries: Vec<Entry>,
    /// The open groups: field number, offset of the tag, offset of the content.
    open: Vec<(u32, u64, u64)>,
    depth: u32,
}

impl Shallow {
    /// Parses the fields that begin in `bytes`, whose offset is `position`. Returns the number of parsed bytes, which
    /// exceeds the length of `bytes` when the last field is longer.
    fn window(&mut self, bytes: &[u8], position: u64, end: u64) -> Result<u64> {
        let mut at = 0u64;
        while at < bytes.len() as u64 {
            let start = position + at;
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let Some(header) = header::read(rest, start)? else {
                let cut = start + rest.len() as u64 >= end;
                return if cut {
                    Err(WireError::corrupt(start, "a field is truncated: its message ends inside it"))
                } else {
                    Ok(at)
                };
            };
            let left = end - start;
            let len = header.size().filter(|len| *len <= left);
            let head = u64::from(header.head_len);
            let len = len.ok_or_else(|| header::past_parent(&header, left.saturating_sub(head), start))?;
            match header.wire {
                Wire::Group => {
                    self.open.push((header.number, start, start + head));
                    if self.open.len() > self.depth as usize {
                        let message = format!("groups are nested more than {} levels deep", self.depth);
                        return Err(WireError::new(Kind::Limit, message).at(start));
                    }
                }
                Wire::EndGroup => self.end_group(header.number, start, start + head)?,
                _ if self.open.is_empty() => append(&mut self.entries, Entry::new(&header, start)),
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
                    let wire = Wire::Group;
                    self.entries.push(Entry { number, wire, start, content, content_end, end, count: 1, node: None });
                }
                Ok(())
            }
            _ => Err(header::stray_end(number, content_end)),
        }
    }
}

/// Appends `entry`, or adds it to the last run.
pub(crate) fn append(entries: &mut Vec<Entry>, entry: Entry) {
    let scalar = !matches!(entry.wire, Wire::Len | Wire::Group);
    match entries.last_mut() {
        Some(run)
            if scalar && run.number == entry.number && run.wire == entry.wire && entry.end - run.start <= RUN_BYTES =>
        {
            (run.content_end, run.end) = (entry.end, entry.end);
            run.count += 1;
        }
        _ => entries.push(entry),
    }
}

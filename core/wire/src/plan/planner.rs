//! The planning of one message: the chunks that are taken out, and the rest.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::rules::{Active, Meaning, Wish};
use super::{Chunk, Policy};
use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::{Kind, Result, WireError};
use crate::metadata::{ChunkKind, Tag};
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::{Field, FieldKind, TypeId};

/// Bytes of a small message that count as one step of work.
const BYTES_A_STEP: u64 = 64;

/// The plan of one message.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// The bytes that stay in the message.
    pub(super) rest: Rope,
    /// The chunks made of entries of repeated fields. Each is a piece of this message.
    pub(super) runs: Vec<Chunk>,
    /// The chunks of the message's other fields, and of fields below these.
    pub(super) fields: Vec<PlannedField>,
}

#[derive(Debug)]
pub(super) struct PlannedField {
    pub(super) tags: Vec<Tag>,
    pub(super) chunk: Chunk,
    pub(super) runs: Vec<Chunk>,
    pub(super) fields: Vec<PlannedField>,
}

/// The outcome for one field of a planned message.
pub(super) enum Outcome {
    /// The field became a chunk; nothing of it stays.
    Gone,
    /// The field stays with this content.
    Changed(Rope),
}

impl Document<'_> {
    pub(super) fn name(&self, type_id: Option<TypeId>) -> Option<String> {
        type_id.and_then(|id| self.schema.message(id)).map(|message| message.name.clone())
    }
}

/// The planner of a proto's messages, from the outermost message inwards.
pub(super) struct Planner<'a, 'd> {
    pub(super) doc: &'a Document<'d>,
    pub(super) policy: &'a Policy,
    /// Most chunks of the plan; `made` counts the chunks planned so far.
    pub(super) most: u64,
    pub(super) made: Cell<u64>,
    pub(super) meaning: &'a Meaning,
    /// The number of steps of work that only the rules have caused.
    pub(super) looked: Cell<u64>,
}

impl Planner<'_, '_> {
    /// Counts one more chunk; fails with a `Limit` error when there are too many.
    pub(super) fn count(&self) -> Result<()> {
        self.made.set(self.made.get() + 1);
        if self.made.get() <= self.most {
            return Ok(());
        }
        let Policy { min_chunk, max_chunk } = self.policy;
        let message = format!(
            "chunks from {min_chunk} and up to {max_chunk} bytes would be more than {}: \
             raise min_chunk, max_chunk, or the chunks limit",
            self.most
        );
        Err(WireError::new(Kind::Limit, message))
    }

    /// Counts the work of examining `entry`, which would be too small to be examined without rules. If the index has no
    /// node for `message`, the whole message must be walked.
    pub(super) fn look(&self, message: &Message, entry: &Entry) -> Result<()> {
        let around = match message.parts.first() {
            Some(Part::Span(span, _)) => span.end - span.start,
            _ => 0,
        };
        self.looked.set(self.looked.get() + 1 + (entry.content_len() + around) / BYTES_A_STEP);
        if self.looked.get() <= self.doc.limits.steps {
            return Ok(());
        }
        let message = "the rules look into too many small messages: give fewer elements, such as [0:10000], or shorter \
                       paths";
        Err(WireError::new(Kind::Limit, message).at(entry.start))
    }

    /// What the rules want for the element `entry` of `message` at position `at`.
    fn wish(&self, message: &Message, entry: &Entry, at: u64, active: Active) -> Result<Wish> {
        let least = self.policy.min_chunk;
        let map = self.doc.schema.field(message.type_id, entry.number).filter(|field| self.doc.schema.is_map(field));
        match map {
            Some(field) if !active.is_empty() => self.wish_of_entry(message, field, entry, active),
            _ => Ok(self.meaning.element(active, entry.number, at, None, least)),
        }
    }

    /// Plans `message`, which must be in one piece, with the rules that are `active` in it.
    pub(super) fn message(&self, message: &Message, path: &str, depth: u32, active: Active) -> Result<Planned> {
        let Some(part) = message.parts.first() else { return Ok(Planned::default()) };
        let span = self.doc.span(part)?;
        self.doc.limits.check_depth(depth, span.start)?;
        let mut planned = Planned::default();
        let mut outcomes: BTreeMap<u64, Outcome> = BTreeMap::new();
        let mut ordinals: HashMap<u32, u64> = HashMap::new();
        let mut sizes: HashMap<u32, u64> = HashMap::new();
        for entry in self.doc.entries(part)? {
            let entry = entry?;
            let ordinal = ordinals.entry(entry.number).or_default();
            let at = *ordinal;
            *ordinal += entry.count;
            let mut size = entry.end - entry.start;
            let wish = self.wish(message, &entry, at, active)?;
            if self.concerns(message, &entry, &wish)?
                && let Some(outcome) = self.large(message, &entry, at, path, depth, wish, &mut planned)?
            {
                size = match &outcome {
                    Outcome::Gone => 0,
                    Outcome::Changed(rope) => Entry::minimal_head(entry.number, rope.len()) + rope.len(),
                };
                outcomes.insert(entry.start, outcome);
            }
            *sizes.entry(entry.number).or_default() += size;
        }
        let run = |number: u32| self.meaning.run(active, number, self.policy.min_chunk);
        let out = |number: &u32| {
            let field = self.doc.schema.field(message.type_id, *number);
            let (size, run) = (sizes.get(number).copied().unwrap_or(0), run(*number));
            field.is_some_and(|field| field.repeated) && size > 0 && (size >= run.least || run.every.is_some())
        };
        let mut runs: Vec<u32> = sizes.keys().filter(|number| out(number)).copied().collect();
        runs.sort_unstable();
        let runs: Vec<_> = runs.into_iter().map(|number| (number, run(number).every)).collect();
        if outcomes.is_empty() && runs.is_empty() {
            planned.rest = Rope::extent(IMAGE, span.start, span.end - span.start);
            return Ok(planned);
        }
        self.assemble(message, path, &outcomes, &runs, &mut planned)?;
        Ok(planned)
    }

    /// Divides the entries into the rest of the message and the pieces of its runs.
    fn assemble(
        &self,
        message: &Message,
        path: &str,
        outcomes: &BTreeMap<u64, Outcome>,
        runs: &[(u32, Option<u64>)],
        planned: &mut Planned,
    ) -> Result<()> {
        let mut rest = RopeBuilder::new(&self.doc.limits);
        let mut cutters: Vec<Cutter<'_, '_, '_>> =
            runs.iter().map(|(number, every)| Cutter::new(self, message, path, *number, *every)).collect();
        for entry in message.parts.first().map(|part| self.doc.entries(part)).transpose()?.into_iter().flatten() {
            let entry = entry?;
            let run = runs.binary_search_by_key(&entry.number, |(number, _)| *number);
            let cutter = run.ok().and_then(|at| cutters.get_mut(at));
            let out = match cutter {
                Some(cutter) => cutter.next(&entry, outcomes.get(&entry.start))?,
                None => &mut rest,
            };
            match outcomes.get(&entry.start) {
                Some(Outcome::Gone) => {}
                Some(Outcome::Changed(rope)) => self.doc.rewrap(&entry, rope, out)?,
                None => out.extent(IMAGE, entry.start, entry.end - entry.start),
            }
            out.check()?;
        }
        for cutter in cutters {
            planned.runs.extend(cutter.finish()?);
        }
        planned.rest = rest.finish();
        Ok(())
    }

    /// True if `entry`, or anything below it, may become a chunk.
    fn concerns(&self, message: &Message, entry: &Entry, wish: &Wish) -> Result<bool> {
        let small = entry.content_len() < self.policy.min_chunk;
        let concerned = if wish.whole {
            entry.content_len() >= wish.least
        } else {
            !small || entry.content_len() >= wish.least || !wish.below.is_empty()
        };
        if small && concerned {
            self.look(message, entry)?;
        }
        Ok(concerned)
    }

    /// Plans a field that `wish` affects; its chunks are added to `planned`. Returns None when the field stays
    /// unchanged.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    fn large(
        &self,
        message: &Message,
        entry: &Entry,
        ordinal: u64,
        path: &str,
        depth: u32,
        wish: Wish,
        planned: &mut Planned,
    ) -> Result<Option<Outcome>> {
        let Some(field) = self.doc.schema.field(message.type_id, entry.number) else { return Ok(None) };
        let label = join(path, &field.name);
        if self.doc.schema.is_map(field) {
            return self.map_entry(message, field, entry, &label, depth, wish, planned);
        }
        let mut tags = vec![Tag::Field(field.number)];
        let mut label = label;
        if field.repeated {
            tags.push(Tag::Index(ordinal));
            label = format!("{label}[{ordinal}]");
        } else if !self.is_alone(message, field)? {
            return Ok(None);
        }
        match field.kind {
            FieldKind::Message => {
                let left = self.child(field, entry, tags, &label, depth, wish, planned)?;
                Ok(left.map(|rope| match rope {
                    None if field.repeated => Outcome::Changed(Rope::default()),
                    None => Outcome::Gone,
                    Some(rope) => Outcome::Changed(rope),
                }))
            }
            FieldKind::Bytes | FieldKind::String if !field.repeated && entry.content_len() >= wish.least => {
                self.count()?;
                let rope = Rope::extent(IMAGE, entry.content, entry.content_len());
                let chunk = Chunk { kind: ChunkKind::Bytes, type_name: None, path: label, rope };
                planned.fields.push(PlannedField { tags, chunk, runs: Vec::new(), fields: Vec::new() });
                Ok(Some(Outcome::Gone))
            }
            _ => Ok(None),
        }
    }

    /// Plans the message in `entry`. None means that nothing was taken out. Some(None) means that the message itself
    /// became a chunk. Some(rope) is the rest of the message.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    pub(super) fn child(
        &self,
        field: &Field,
        entry: &Entry,
        tags: Vec<Tag>,
        path: &str,
        depth: u32,
        wish: Wish,
        planned: &mut Planned,
    ) -> Result<Option<Option<Rope>>> {
        let type_id = Some(field.target);
        let message = Message { type_id, parts: vec![Part::of(entry, type_id)] };
        let whole = || Planned { rest: Rope::extent(IMAGE, entry.content, entry.content_len()), ..Planned::default() };
        let below = if wish.whole { whole() } else { self.message(&message, path, depth + 1, wish.below)? };
        let Planned { rest, mut runs, fields } = below;
        if rest.len() >= wish.least {
            self.count()?;
            let type_name = self.doc.name(type_id);
            let chunk = Chunk { kind: ChunkKind::Message, type_name, path: path.to_owned(), rope: rest };
            planned.fields.push(PlannedField { tags, chunk, runs, fields });
            return Ok(Some(None));
        }
        if !runs.is_empty() {
            let chunk = runs.remove(0);
            planned.fields.push(PlannedField { tags, chunk, runs, fields });
        } else if fields.is_empty() {
            return Ok(None);
        } else {
            planned.fields.extend(fields.into_iter().map(|field| field.below(&tags)));
        }
        Ok(Some(Some(rest)))
    }

    /// True if the singular `field` occurs once in `message`, and no other member of its oneof occurs.
    fn is_alone(&self, message: &Message, field: &Field) -> Result<bool> {
        if self.doc.total(message, field.number)? != 1 {
            return Ok(false);
        }
        let Some(known) = message.type_id.and_then(|id| self.doc.schema.message(id)).filter(|_| field.oneof > 0) else {
            return Ok(true);
        };
        for other in known.fields().iter().filter(|other| other.oneof == field.oneof && other.number != field.number) {
            if self.doc.total(message, other.number)? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl PlannedField {
    fn below(mut self, tags: &[Tag]) -> Self {
        self.tags.splice(0..0, tags.iter().cloned());
        self
    }
}

/// Collects the elements of one field into pieces. A piece is a message of the parent's type; it has up to `every`
/// elements and up to `max_chunk` bytes, but at least one element.
struct Cutter<'p, 'a, 'd> {
    planner: &'p Planner<'a, 'd>,
    type_name: Option<String>,
    label: String,
    /// Most elements of a piece.
    every: u64,
    building: RopeBuilder,
    first: u64,
    seen: u64,
    done: Vec<Chunk>,
}

impl<'p, 'a, 'd> Cutter<'p, 'a, 'd> {
    fn new(planner: &'p Planner<'a, 'd>, message: &Message, path: &str, number: u32, every: Option<u64>) -> Self {
        let doc = planner.doc;
        let name =
            doc.schema.field(message.type_id, number).map_or_else(|| number.to_string(), |field| field.name.clone());
        Self {
            planner,
            type_name: doc.name(message.type_id),
            label: join(path, &name),
            every: every.unwrap_or(u64::MAX),
            building: RopeBuilder::new(&doc.limits),
            first: 0,
            seen: 0,
            done: Vec::new(),
        }
    }

    /// The rope of the piece to which `entry` belongs.
    fn next(&mut self, entry: &Entry, outcome: Option<&Outcome>) -> Result<&mut RopeBuilder> {
        let size = match outcome {
            Some(Outcome::Changed(rope)) => Entry::minimal_head(entry.number, rope.len()) + rope.len(),
            _ => entry.end - entry.start,
        };
        let full = self.building.len().saturating_add(size) > self.planner.policy.max_chunk;
        if !self.building.is_empty() && (full || self.seen - self.first >= self.every) {
            self.cut()?;
        }
        self.seen += entry.count;
        Ok(&mut self.building)
    }

    fn cut(&mut self) -> Result<()> {
        self.planner.count()?;
        let building = RopeBuilder::new(&self.planner.doc.limits);
        let rope = std::mem::replace(&mut self.building, building).finish();
        let path = format!("{}[{}:{}]", self.label, self.first, self.seen);
        self.done.push(Chunk { kind: ChunkKind::Message, type_name: self.type_name.clone(), path, rope });
        self.first = self.seen;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Chunk>> {
        if !self.building.is_empty() {
            self.cut()?;
        }
        Ok(self.done)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

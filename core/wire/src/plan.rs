//! The plan of a split: which parts of a proto become chunks, and the metadata that says how they make it up.
//!
//! What is planned is what TensorFlow's Merger accepts: messages by field, index or map key, singular bytes and
//! strings, and runs of repeated fields as pieces of their parent. Whatever cannot be told that way stays where it is.

mod maps;
mod pieces;

use std::collections::{BTreeMap, HashMap};

use pieces::Cutter;

use crate::document::{Document, Message, Part};
use crate::entry::Entry;
use crate::error::Result;
use crate::metadata::{ChunkKind, ChunkedField, ChunkedMessage, Tag};
use crate::rope::{IMAGE, Rope, RopeBuilder};
use crate::schema::{Field, FieldKind, TypeId};

/// What becomes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fields at least this large, in bytes, are split out.
    pub min_chunk: u64,
    /// A run of repeated elements is cut at this size.
    pub max_chunk: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { min_chunk: 1 << 20, max_chunk: 1 << 30 }
    }
}

/// One chunk of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whether it is a message or bytes.
    pub kind: ChunkKind,
    /// The name of the message type, where it is one and the type is known.
    pub type_name: Option<String>,
    /// The part of the proto it stands for.
    pub path: String,
    /// Its bytes.
    pub rope: Rope,
}

/// Chunks, and how they make up the proto.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The chunks, by number.
    pub chunks: Vec<Chunk>,
    /// Where they belong.
    pub message: ChunkedMessage,
}

/// What planning one message gave.
#[derive(Debug, Default)]
struct Planned {
    /// What stays of it.
    rest: Rope,
    /// Repeated fields that were taken out whole, as pieces of the message.
    runs: Vec<Chunk>,
    /// What was taken out of it and below it.
    fields: Vec<PlannedField>,
}

#[derive(Debug)]
struct PlannedField {
    tags: Vec<Tag>,
    chunk: Chunk,
    runs: Vec<Chunk>,
    fields: Vec<PlannedField>,
}

/// What becomes of one field of a message that is planned.
enum Outcome {
    /// It is a chunk now, and nothing is left.
    Gone,
    /// It stays, with this in place of its content.
    Changed(Rope),
}

impl Document<'_> {
    /// The plan that `policy` gives.
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        let root = self.root()?;
        let mut plan = Plan::default();
        let planned = Planner { doc: self, policy }.message(&root, "", 0)?;
        let Planned { mut rest, mut runs, fields } = planned;
        if rest.is_empty()
            && fields.is_empty()
            && let [whole] = runs.as_mut_slice()
        {
            // All of it in one piece is the proto itself: nothing is split.
            rest = std::mem::take(&mut whole.rope);
            runs.clear();
        }
        if !rest.is_empty() || (runs.is_empty() && fields.is_empty()) {
            plan.message.chunk = Some(0);
            plan.chunks.push(Chunk {
                kind: ChunkKind::Message,
                type_name: self.name(root.type_id),
                path: String::new(),
                rope: rest,
            });
        }
        plan.message.fields = number(runs, fields, &mut plan.chunks);
        Ok(plan)
    }
}

impl Document<'_> {
    fn name(&self, type_id: Option<TypeId>) -> Option<String> {
        type_id.and_then(|id| self.schema.message(id)).map(|message| message.name.clone())
    }
}

/// Numbers chunks in the order they are merged in: pieces of the message first, then what goes below it.
fn number(runs: Vec<Chunk>, fields: Vec<PlannedField>, chunks: &mut Vec<Chunk>) -> Vec<ChunkedField> {
    let mut out = Vec::new();
    for run in runs {
        let message = ChunkedMessage { chunk: Some(chunks.len() as u64), fields: Vec::new() };
        chunks.push(run);
        out.push(ChunkedField { tags: Vec::new(), message });
    }
    for field in fields {
        let chunk = Some(chunks.len() as u64);
        chunks.push(field.chunk);
        let fields = number(field.runs, field.fields, chunks);
        out.push(ChunkedField { tags: field.tags, message: ChunkedMessage { chunk, fields } });
    }
    out
}

struct Planner<'a, 'd> {
    doc: &'a Document<'d>,
    policy: &'a Policy,
}

impl Planner<'_, '_> {
    /// Plans a message in one piece.
    fn message(&self, message: &Message, path: &str, depth: u32) -> Result<Planned> {
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
            if entry.content_len() >= self.policy.min_chunk
                && let Some(outcome) = self.large(message, &entry, at, path, depth, &mut planned)?
            {
                size = match &outcome {
                    Outcome::Gone => 0,
                    Outcome::Changed(rope) => Entry::minimal_head(entry.number, rope.len()) + rope.len(),
                };
                outcomes.insert(entry.start, outcome);
            }
            *sizes.entry(entry.number).or_default() += size;
        }
        let out = |number: &u32| {
            let field = self.doc.schema.field(message.type_id, *number);
            field.is_some_and(|field| field.repeated)
                && sizes.get(number).is_some_and(|size| *size >= self.policy.min_chunk)
        };
        let mut runs: Vec<u32> = sizes.keys().filter(|number| out(number)).copied().collect();
        runs.sort_unstable();
        if outcomes.is_empty() && runs.is_empty() {
            planned.rest = Rope::extent(IMAGE, span.start, span.end - span.start);
            return Ok(planned);
        }
        self.assemble(message, path, &outcomes, &runs, &mut planned)?;
        Ok(planned)
    }

    /// Puts together what stays of a message and the pieces of it that go out.
    fn assemble(
        &self,
        message: &Message,
        path: &str,
        outcomes: &BTreeMap<u64, Outcome>,
        runs: &[u32],
        planned: &mut Planned,
    ) -> Result<()> {
        let mut rest = RopeBuilder::new(&self.doc.limits);
        let mut cutters: Vec<Cutter<'_>> =
            runs.iter().map(|number| Cutter::new(self, message, path, *number)).collect();
        for entry in message.parts.first().map(|part| self.doc.entries(part)).transpose()?.into_iter().flatten() {
            let entry = entry?;
            let cutter = runs.binary_search(&entry.number).ok().and_then(|at| cutters.get_mut(at));
            let out = match cutter {
                Some(cutter) => cutter.next(&entry, outcomes.get(&entry.start)),
                None => &mut rest,
            };
            match outcomes.get(&entry.start) {
                Some(Outcome::Gone) => {}
                Some(Outcome::Changed(rope)) => self.doc.rewrap(&entry, rope, out)?,
                None => out.extent(IMAGE, entry.start, entry.end - entry.start),
            }
            out.check()?;
        }
        planned.runs = cutters.into_iter().flat_map(Cutter::finish).collect();
        planned.rest = rest.finish();
        Ok(())
    }

    /// Plans a field of some size: what was taken out goes into `planned`. None when it stays as it is.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    fn large(
        &self,
        message: &Message,
        entry: &Entry,
        ordinal: u64,
        path: &str,
        depth: u32,
        planned: &mut Planned,
    ) -> Result<Option<Outcome>> {
        let Some(field) = self.doc.schema.field(message.type_id, entry.number) else { return Ok(None) };
        let label = join(path, &field.name);
        if self.doc.is_map(field) {
            return self.map_entry(message, field, entry, &label, depth, planned);
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
                let left = self.child(field, entry, tags, &label, depth, planned)?;
                Ok(left.map(|rope| match rope {
                    None if field.repeated => Outcome::Changed(Rope::default()),
                    None => Outcome::Gone,
                    Some(rope) => Outcome::Changed(rope),
                }))
            }
            FieldKind::Bytes | FieldKind::String if !field.repeated => {
                let rope = Rope::extent(IMAGE, entry.content, entry.content_len());
                let chunk = Chunk { kind: ChunkKind::Bytes, type_name: None, path: label, rope };
                planned.fields.push(PlannedField { tags, chunk, runs: Vec::new(), fields: Vec::new() });
                Ok(Some(Outcome::Gone))
            }
            _ => Ok(None),
        }
    }

    /// Plans the message in `entry`. None: nothing was taken out. Some(None): it is a chunk of its own. Some(rope):
    /// that is left of it.
    #[allow(clippy::too_many_arguments, reason = "a step of a recursion")]
    fn child(
        &self,
        field: &Field,
        entry: &Entry,
        tags: Vec<Tag>,
        path: &str,
        depth: u32,
        planned: &mut Planned,
    ) -> Result<Option<Option<Rope>>> {
        let type_id = Some(field.target);
        let message = Message { type_id, parts: vec![Part::of(entry, type_id)] };
        let Planned { rest, mut runs, fields } = self.message(&message, path, depth + 1)?;
        if rest.len() >= self.policy.min_chunk {
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

    /// Whether the singular `field` occurs once in `message`, and no other member of its oneof does.
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

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

//! The plan of a split: the parts of a proto that become chunks, and the metadata with which the chunks are merged.
//!
//! A plan only uses what TensorFlow's Merger accepts. These are messages (by field, index or map key), singular bytes
//! and strings, and runs of repeated fields as pieces of their parent. All other parts stay in their message.

mod maps;
mod planner;
pub mod rules;

use std::cell::Cell;

use planner::{Planned, PlannedField, Planner};
use rules::{Meaning, Rule};

use crate::document::Document;
use crate::error::Result;
use crate::metadata::{ChunkKind, ChunkedField, ChunkedMessage};
use crate::rope::Rope;

/// The version of the planner, which is part of the identity of every store whose root was planned.
///
/// A change to the plans, or to the planner's input (metadata or paths), must raise this version. A change to the image
/// of a chunked proto must raise the two versions below. The same files then give another store, so a URL or entity tag
/// never refers to other bytes.
pub const VERSION: u32 = 1;

/// The version of plans that were kept from chunked protos; it replaces [`VERSION`] in the identity of their stores. A
/// number must never be used for two kinds of plans, nor be reused.
pub const KEPT_VERSION: u32 = 3;

/// The version of plans made from sizes for chunked protos; it replaces [`VERSION`] and covers the merge too.
pub const MERGED_VERSION: u32 = 4;

/// True if `version` is or was the [`KEPT_VERSION`].
pub fn is_kept(version: u64) -> bool {
    matches!(version, 2 | 3)
}

/// The sizes that determine which parts become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fields of at least this size in bytes become chunks.
    pub min_chunk: u64,
    /// A run of repeated elements is cut at this size in bytes.
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
    /// The kind of the content: message or bytes.
    pub kind: ChunkKind,
    /// The name of the message type; None for bytes and for unknown types.
    pub type_name: Option<String>,
    /// The path of the part that the chunk contains.
    pub path: String,
    /// The bytes of the chunk.
    pub rope: Rope,
}

/// A split plan: the chunks, and how they form the proto.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The chunks, by number.
    pub chunks: Vec<Chunk>,
    /// The message that the chunks form; empty if `origin` exists, whose metadata contains it.
    pub message: ChunkedMessage,
    /// The chunked proto from which the plan was kept; None for a plan made by the planner.
    pub origin: Option<Origin>,
}

/// A chunked proto from which a plan was kept; the file stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The serialized `ChunkMetadata` of the file.
    pub metadata: Vec<u8>,
    /// The size of the file in bytes.
    pub size: u64,
}

impl Document<'_> {
    /// Plans the split of the proto by `policy`.
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        self.plan_by(policy, &[])
    }

    /// Plans the split of the proto by `rules`, and by `policy` where no rule applies.
    pub fn plan_by(&self, policy: &Policy, rules: &[Rule]) -> Result<Plan> {
        let root = self.root()?;
        let mut plan = Plan::default();
        let most = self.limits.chunks_of(self.index.size());
        let meaning = Meaning::new(rules, self.schema, root.type_id)?;
        let planner = Planner { doc: self, policy, meaning: &meaning, most, made: Cell::new(0), looked: Cell::new(0) };
        let planned = planner.message(&root, "", 0, meaning.root())?;
        let Planned { mut rest, mut runs, fields } = planned;
        if rest.is_empty()
            && fields.is_empty()
            && let [whole] = runs.as_mut_slice()
        {
            // A single piece would be the whole proto, which is then not split.
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

/// Numbers the chunks in merge order: first the pieces of the message, then the chunks below it.
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

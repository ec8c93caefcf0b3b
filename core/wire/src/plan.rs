//! Plan of a split: the parts of a proto that become chunks, and the metadata that puts them together.
//!
//! Plans use only what TensorFlow's Merger accepts: messages by field, index or map key, singular bytes and strings,
//! and runs of repeated fields as pieces of their parent. Parts that cannot be placed that way stay in their message.

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

/// Version of the planner, which is part of the identity of every store whose root was planned.
///
/// A change to the plans, or to the input of the planner (the metadata, the paths), must raise the version; one to the
/// image of a chunked proto raises the two versions below. The same files are then another store, and no URL or entity tag ever stands for other bytes.
pub const VERSION: u32 = 1;

/// Version of plans that chunked files came with, in the place of [`VERSION`] in the identity of their stores. No number
/// may be used for two kinds of plans, nor be used again.
pub const KEPT_VERSION: u32 = 3;

/// Version of plans by sizes of chunked files, in the place of [`VERSION`]: it covers the merge too.
pub const MERGED_VERSION: u32 = 4;

/// True if `version` is, or was, the [`KEPT_VERSION`].
pub fn is_kept(version: u64) -> bool {
    matches!(version, 2 | 3)
}

/// Sizes that decide which parts become chunks.
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
    /// Kind of the content: message or bytes.
    pub kind: ChunkKind,
    /// Name of the message type; None for bytes and for unknown types.
    pub type_name: Option<String>,
    /// Path of the part that the chunk holds.
    pub path: String,
    /// Bytes of the chunk.
    pub rope: Rope,
}

/// Split plan: the chunks and how they make up the proto.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The chunks, by number.
    pub chunks: Vec<Chunk>,
    /// Message that the chunks make up; left empty where the metadata of `origin` has it.
    pub message: ChunkedMessage,
    /// The chunked file that the plan came with; None for a plan made here.
    pub origin: Option<Origin>,
}

/// Chunked file that came with a plan, which is kept byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The serialized `ChunkMetadata` of the file.
    pub metadata: Vec<u8>,
    /// Size of the file in bytes.
    pub size: u64,
}

impl Document<'_> {
    /// Plans the split of the proto by `policy`.
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        self.plan_by(policy, &[])
    }

    /// Plans the split of the proto by `rules`, and by `policy` where they say nothing.
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
            // A single piece is the whole proto, which is then not split.
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

/// Numbers chunks in merge order: pieces of the message first, then the chunks below it.
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

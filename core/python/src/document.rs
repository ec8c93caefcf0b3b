//! `_core.Document` and `_core.Plan`: views of an indexed proto.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::cpb;
use wire::document as engine;
use wire::find::Query;
use wire::listing::Child;
use wire::mask::Mask;
use wire::metadata::ChunkKind;
use wire::omit::Omit;
use wire::path::Path;
use wire::plan::{Policy, rules};
use wire::resolve::Target;
use wire::rope::IMAGE;

use crate::errors;
use crate::find::Findings;
use crate::index::Index;
use crate::limits::{self, Limits};
use crate::rope::Rope;
use crate::schema::Schema;
use crate::source::Sources;

/// The view of a path: kind of the target, its message type's name, and its bytes. The name is None when the type is
/// unknown or the target is not a message.
type View = (&'static str, Option<String>, Rope);
/// Facts about a place: kind, name of its message type, bytes, number of children.
type Whole = (&'static str, Option<String>, u64, u64);
/// One row of a listing.
type Row = (String, u32, Option<String>, Option<&'static str>, Option<String>, Option<u64>, u64, bool, Option<String>);

/// A proto with its index and the sources that contain its bytes.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Document {
    index: Arc<wire::index::Index>,
    schema: Arc<wire::Schema>,
    sources: Sources,
    image: Option<wire::Rope>,
    limits: wire::Limits,
}

#[pymethods]
impl Document {
    /// Opens the proto of `index`. Its bytes are those of the only source, or the rope `image` over several sources.
    #[new]
    #[pyo3(signature = (index, schema, sources, image=None, *, limits=None))]
    fn new(
        index: &Bound<'_, Index>,
        schema: Option<&Bound<'_, Schema>>,
        sources: Vec<Bound<'_, PyAny>>,
        image: Option<&Bound<'_, Rope>>,
        limits: Option<&Bound<'_, Limits>>,
    ) -> PyResult<Self> {
        Ok(Self {
            index: Arc::clone(index.get().index()),
            schema: schema.map(|schema| Arc::clone(schema.get().table())).unwrap_or_default(),
            sources: Sources::new(&sources)?,
            image: image.map(|image| image.get().0.clone()),
            limits: limits::of(limits),
        })
    }

    /// The view of `path`. For a message, `fields` selects its fields. Fields larger than `omit` bytes and fields at
    /// the paths `without` are left out.
    #[pyo3(signature = (path="", fields=None, omit=None, without=None))]
    fn view(
        &self,
        py: Python<'_>,
        path: &str,
        fields: Option<Vec<String>>,
        omit: Option<u64>,
        without: Option<Vec<String>>,
    ) -> PyResult<View> {
        self.with(py, |doc| {
            let path = Path::parse(path, &doc.limits)?;
            let target = doc.resolve(&path)?;
            let paths = fields.map(|fields| fields.iter().map(|field| Path::parse(field, &doc.limits)).collect());
            let paths: Option<Vec<Path>> = paths.transpose()?;
            let mask = paths.map(|paths| Mask::new(&paths)).transpose()?;
            let without = without.unwrap_or_default();
            let without =
                without.iter().map(|field| Path::parse(field, &doc.limits)).collect::<wire::Result<Vec<_>>>()?;
            let dropped = if without.is_empty() { Vec::new() } else { doc.spans_at(&target, &without)? };
            let rope = doc.view_without(&target, mask.as_ref(), &Omit::new(omit, dropped))?;
            Ok((kind(&target), self.type_name(&target), Rope(self.on_sources(rope))))
        })
    }

    /// Up to `limit` children of `path` from position `start` on, and the total number of children.
    #[pyo3(signature = (path="", start=0, limit=1000))]
    fn children(&self, py: Python<'_>, path: &str, start: u64, limit: usize) -> PyResult<(Vec<Row>, u64)> {
        self.with(py, |doc| {
            let target = doc.resolve(&Path::parse(path, &doc.limits)?)?;
            let (children, total) = doc.children(&target, start, limit)?;
            Ok((children.into_iter().map(row).collect(), total))
        })
    }

    /// Up to `most` children of `path` that have `least` bytes or more, the largest first. The second value describes
    /// the path itself: kind, message type, bytes and number of children.
    fn heaviest(&self, py: Python<'_>, path: &str, most: usize, least: u64) -> PyResult<(Vec<Row>, Whole)> {
        self.with(py, |doc| {
            let target = doc.resolve(&Path::parse(path, &doc.limits)?)?;
            let found = doc.heaviest(&target, most, least)?;
            let whole = (kind(&target), self.type_name(&target), found.size, found.total);
            Ok((found.children.into_iter().map(row).collect(), whole))
        })
    }

    /// Up to `limit` parts, the largest first. Each has a path, its bytes, and the number of elements if the row sums
    /// up several elements, else None.
    fn largest(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<(String, u64, Option<u64>)>> {
        self.with(py, |doc| {
            Ok(doc.largest(limit)?.into_iter().map(|large| (large.path, large.size, large.count)).collect())
        })
    }

    /// All messages of `types` at any depth; None selects every type. Fields of up to `small` bytes are included in the
    /// results; messages of fewer than `least` bytes are skipped.
    #[pyo3(signature = (types, *, small=256, least=0))]
    fn find(&self, py: Python<'_>, types: Option<Vec<String>>, small: u64, least: u64) -> PyResult<Findings> {
        let known =
            |types: Vec<String>| types.iter().filter_map(|name| self.schema.type_named(name)).collect::<Vec<_>>();
        let types = types.map(known);
        let found = self.with(py, |doc| doc.find(&Query { types: types.as_deref(), small, least }))?;
        Ok(Findings::new(Arc::clone(&self.schema), found))
    }

    /// Field `number` of the message type `name`: its name, its kind, whether it is repeated, and whether it belongs to
    /// a map entry. None when the field does not exist.
    fn field(&self, name: &str, number: u32) -> Option<(String, &'static str, bool, bool)> {
        let message = self.schema.message(self.schema.type_named(name)?)?;
        let field = message.field(number)?;
        Some((field.name.clone(), field.kind.name(), field.repeated, message.map_entry))
    }

    /// The bytes of the proto from `start` to `end`, as a rope over the sources.
    fn at(&self, start: u64, end: u64) -> Rope {
        Rope(self.on_sources(wire::Rope::extent(IMAGE, 0, self.index.size()).slice(start..end)))
    }

    /// The split plan for the chunk sizes `min_chunk` and `max_chunk` in bytes; `rules` take precedence over sizes.
    #[pyo3(signature = (min_chunk, max_chunk, rules=Vec::new()))]
    fn plan(&self, py: Python<'_>, min_chunk: u64, max_chunk: u64, rules: Vec<String>) -> PyResult<Plan> {
        self.with(py, |doc| {
            let rules = rules::parse(&rules, &doc.limits)?;
            let mut plan = doc.plan_by(&Policy { min_chunk, max_chunk }, &rules)?;
            plan.chunks.iter_mut().for_each(|chunk| chunk.rope = self.on_sources(std::mem::take(&mut chunk.rope)));
            Ok(Plan { plan, limits: self.limits })
        })
    }
}

impl Document {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&engine::Document<'_>) -> wire::Result<R> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            self.sources.with(self.image.as_ref(), |source| {
                f(&engine::Document::new(&self.index, &self.schema, source, self.limits)?)
            })
        });
        result.map_err(|error| errors::raise(py, error))
    }

    fn on_sources(&self, rope: wire::Rope) -> wire::Rope {
        self.image.as_ref().map_or_else(|| rope.clone(), |image| rope.through(IMAGE, image))
    }

    fn type_name(&self, target: &Target) -> Option<String> {
        let Target::Message(message) = target else { return None };
        message.type_id.and_then(|id| self.schema.message(id)).map(|message| message.name.clone())
    }
}

fn kind(target: &Target) -> &'static str {
    match target {
        Target::Message(_) => "message",
        Target::Bytes { kind, .. } => kind.map_or("unknown", |kind| kind.name()),
        Target::Scalar { field, .. } => field.as_ref().map_or("number", |field| field.kind.name()),
        Target::Repeated { .. } => "repeated",
    }
}

fn row(child: Child) -> Row {
    let Child { step, number, name, kind, type_name, count, size, deeper, text } = child;
    (step, number, name, kind, type_name, count, size, deeper, text)
}

/// A split plan: the chunks of a proto, and how they form the proto.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Plan {
    pub(crate) plan: wire::plan::Plan,
    pub(crate) limits: wire::Limits,
}

#[pymethods]
impl Plan {
    /// The version of the planner.
    #[classattr]
    const VERSION: u32 = wire::plan::VERSION;
    /// The version of plans that were kept from chunked protos.
    #[classattr]
    const KEPT_VERSION: u32 = wire::plan::KEPT_VERSION;
    /// The version of plans that were made from chunk sizes for chunked protos.
    #[classattr]
    const MERGED_VERSION: u32 = wire::plan::MERGED_VERSION;

    /// True if `version` is or was the version of plans that were kept from chunked protos.
    #[staticmethod]
    fn is_kept_version(version: u64) -> bool {
        wire::plan::is_kept(version)
    }

    /// True if the plan was kept from a chunked proto.
    #[getter]
    fn kept(&self) -> bool {
        self.plan.origin.is_some()
    }

    fn __len__(&self) -> usize {
        self.plan.chunks.len()
    }

    /// Chunk `number`: "message" or "bytes", its message type, its path, and its bytes.
    fn chunk(&self, number: usize) -> PyResult<(&'static str, Option<String>, String, Rope)> {
        let chunk = self.plan.chunks.get(number);
        let chunk = chunk.ok_or_else(|| pyo3::exceptions::PyIndexError::new_err("no such chunk"))?;
        let kind = if chunk.kind == ChunkKind::Bytes { "bytes" } else { "message" };
        Ok((kind, chunk.type_name.clone(), chunk.path.clone(), Rope(chunk.rope.clone())))
    }

    /// The serialized `ChunkMetadata`, with the positions of the chunks in the file that `cpb` returns.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        if let Some(origin) = &self.plan.origin {
            return Ok(PyBytes::new(py, &origin.metadata));
        }
        let metadata = py.detach(|| cpb::metadata(&self.plan, &self.limits).map(|metadata| metadata.encode()));
        metadata.map(|bytes| PyBytes::new(py, &bytes)).map_err(|error| errors::raise(py, error))
    }

    /// The chunked proto; `hashes` has the hash of each chunk in order. A kept plan ignores them, because its file
    /// exists.
    fn cpb(&self, py: Python<'_>, hashes: Vec<u64>) -> PyResult<Rope> {
        if let Some(origin) = &self.plan.origin {
            return Ok(Rope(wire::Rope::extent(cpb::FILE, 0, origin.size)));
        }
        let rope = py.detach(|| {
            let mut writing = cpb::Writing::new(&self.plan, &self.limits);
            hashes.iter().try_for_each(|hash| writing.push(*hash))?;
            writing.finish()
        });
        rope.map(Rope).map_err(|error| errors::raise(py, error))
    }

    /// The rules in canonical form; fails for a text that is not a rule.
    #[staticmethod]
    fn rules(py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<String>> {
        let rules = rules::parse(&texts, &wire::Limits::default()).map_err(|error| errors::raise(py, error))?;
        Ok(rules.iter().map(ToString::to_string).collect())
    }

    /// The serialized plan.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.plan.encode()))
    }

    /// Reads a plan that `encode` returned.
    #[staticmethod]
    #[pyo3(signature = (data, *, limits=None))]
    fn decode(py: Python<'_>, data: &[u8], limits: Option<&Bound<'_, Limits>>) -> PyResult<Self> {
        let limits = limits::of(limits);
        let plan = py.detach(|| wire::plan::Plan::decode(data, &limits));
        plan.map(|plan| Self { plan, limits }).map_err(|error| errors::raise(py, error))
    }
}

//! One function for each way that foreign bytes come in: none of them may panic, hang, or take memory without bound.
//!
//! The fuzz targets of `core/fuzz` call the same functions.

use std::sync::{Arc, LazyLock};

use wire::bundle::Bundle;
use wire::document::Document;
use wire::find::Query;
use wire::index::Index;
use wire::mask::Mask;
use wire::metadata::Metadata;
use wire::path::Path;
use wire::plan::{Plan, Policy};
use wire::reader::Reader;
use wire::resolve::Target;
use wire::scan::{self, Scanner};
use wire::source::{RopeSource, Source};
use wire::{Limits, Result, Rope, Schema, cpb};

use super::Bytes;
use super::schema::{ROOT, schema};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(schema()));

/// Limits that keep a case small.
pub fn limits() -> Limits {
    Limits { decoded: 4 << 20, metadata: 1 << 20, pieces: 1 << 16, nodes: 1 << 20, ..Limits::default() }
}

fn scanner(floor: u64) -> Result<Scanner> {
    Scanner::new(Arc::clone(&SCHEMA), SCHEMA.type_named(ROOT), floor, limits())
}

/// A proto: fed in pieces, and indexed at random access; both must agree. Then every view of it.
pub fn proto(data: &[u8]) {
    let floor = [1, 16, 300, 16 << 10][data.len() % 4];
    let streamed = fed(data, floor);
    let indexed = scanner(floor).and_then(|scanner| scan::index_source(scanner, &Bytes(data)));
    assert_eq!(streamed.is_ok(), indexed.is_ok(), "streamed {streamed:?}, indexed {indexed:?}");
    if let (Ok(streamed), Ok(indexed)) = (streamed, indexed) {
        assert_eq!(streamed, indexed);
        let _ = views(&indexed, data);
        if is_sound(data) {
            super::walker::check(data, floor);
            let _ = kept_sound(&indexed, data);
        }
    }
}

/// True when `data` are sound protos at every level that the schema describes.
fn is_sound(data: &[u8]) -> bool {
    scanner(1).and_then(|scanner| scan::index_source(scanner, &Bytes(data))).is_ok()
}

/// Asserts that views and merged chunks of a sound proto are sound protos too.
fn kept_sound(index: &[u8], data: &[u8]) -> Result<()> {
    let index = Index::open(Arc::new(index.to_vec()))?;
    let bytes = Bytes(data);
    let document = Document::new(&index, &SCHEMA, &bytes, limits())?;
    let root = Target::Message(document.root()?);
    let whole = document.view(&root, None, None)?;
    assert!(super::corpus::gather(&whole, &[data]) == data);
    let masks = ["node[*].name", "library", "node[0].attr[\"value\"]"].map(|path| Path::parse(path, &limits()));
    let mask = Mask::new(&masks.into_iter().collect::<Result<Vec<_>>>()?)?;
    for (mask, omit) in [(None, Some(0)), (None, Some(40)), (Some(&mask), None), (Some(&mask), Some(9))] {
        let view = super::corpus::gather(&document.view(&root, mask, omit)?, &[data]);
        assert!(is_sound(&view), "mask {mask:?}, omit {omit:?}");
    }
    for (min_chunk, max_chunk) in [(1, 1), (20, 400), (1 << 20, 1 << 30)] {
        let merged = merged(&document.plan(&Policy { min_chunk, max_chunk })?, data)?;
        assert!(is_sound(&merged), "chunks of {min_chunk} to {max_chunk}");
        assert!(max_chunk < 1 << 30 || merged == data);
    }
    Ok(())
}

/// The chunked proto that `plan` makes of `data`, merged.
fn merged(plan: &Plan, data: &[u8]) -> Result<Vec<u8>> {
    let mut writing = cpb::Writing::new(plan, &limits());
    for chunk in &plan.chunks {
        let bytes = super::corpus::gather(&chunk.rope, &[data]);
        let mut hasher = cpb::Writing::hasher(bytes.len() as u64);
        hasher.update(&bytes);
        writing.push(hasher.finish())?;
    }
    let file = super::corpus::gather(&writing.finish()?, &[data]);
    let mut side = Vec::new();
    let chunked = cpb::open(&Bytes(&file), &mut side, &limits()).expect("what is written here opens");
    let (bytes, decoded) = (Bytes(&file), Bytes(&side));
    let sources: [&dyn Source; 2] = [&bytes, &decoded];
    let records = RopeSource::new(&chunked.records, &sources);
    let image = cpb::image(&chunked, &records, &SCHEMA, SCHEMA.type_named(ROOT), &limits());
    Ok(super::corpus::gather(&image.expect("what is written here merges"), &[&file, &side]))
}

/// A path, and a proto in which it is looked for.
pub fn view(text: &[u8], data: &[u8]) {
    let floor = [1, 16, 300][data.len() % 3];
    let Ok(path) = Path::parse(&String::from_utf8_lossy(text), &limits()) else { return };
    let Ok(indexed) = scanner(floor).and_then(|scanner| scan::index_source(scanner, &Bytes(data))) else { return };
    let _ = looked_for(&path, &indexed, data);
}

fn looked_for(path: &Path, index: &[u8], data: &[u8]) -> Result<()> {
    let index = Index::open(Arc::new(index.to_vec()))?;
    let bytes = Bytes(data);
    let document = Document::new(&index, &SCHEMA, &bytes, limits())?;
    let mask = Mask::new(std::slice::from_ref(path))?;
    let masked = document.view(&Target::Message(document.root()?), Some(&mask), None);
    let target = document.resolve(path)?;
    let content = document.content(&target)?;
    assert!(content.len() <= data.len() as u64 * 2 + 20, "{path} has {} bytes", content.len());
    if let (Ok(masked), true) = (masked, is_sound(data)) {
        assert!(is_sound(&super::corpus::gather(&masked, &[data])), "{path}");
    }
    for omit in [None, Some(30)] {
        let _ = document.view(&target, None, omit);
    }
    look_around(&document, &target, 2)
}

fn fed(data: &[u8], floor: u64) -> Result<Vec<u8>> {
    let mut scanner = scanner(floor)?;
    data.chunks(1 + data.len() % 37).try_for_each(|piece| scanner.feed(piece))?;
    scanner.finish(data.len() as u64)
}

/// A proto of which nothing is known.
pub fn untyped(data: &[u8]) {
    let schema = Schema::default();
    let scanner = Scanner::new(Arc::new(Schema::default()), None, 1, limits());
    let bytes = Bytes(data);
    let Ok(indexed) = scanner.and_then(|scanner| scan::index_source(scanner, &bytes)) else { return };
    let Ok(index) = Index::open(Arc::new(indexed)) else { return };
    let Ok(document) = Document::new(&index, &schema, &bytes, limits()) else { return };
    let _ = document.root().and_then(|root| look_around(&document, &Target::Message(root), 3));
}

/// An index as somebody else may have made it, and the proto it claims to be of.
pub fn index(bytes: &[u8], data: &[u8]) {
    let Ok(index) = Index::open(Arc::new(bytes.to_vec())) else { return };
    let _ = index.verify();
    let size = usize::try_from(index.size()).unwrap_or(usize::MAX);
    if size <= 1 << 20 {
        let mut data = data.to_vec();
        data.resize(size, 0);
        let _ = views(bytes, &data);
    }
}

fn views(index: &[u8], data: &[u8]) -> Result<()> {
    let index = Index::open(Arc::new(index.to_vec()))?;
    let bytes = Bytes(data);
    let document = Document::new(&index, &SCHEMA, &bytes, limits())?;
    let root = Target::Message(document.root()?);
    let _ = look_around(&document, &root, 4);
    for omit in [None, Some(0), Some(100)] {
        let _ = document.view(&root, None, omit);
    }
    let _ = document.largest(20);
    for path in super::corpus::PATHS {
        let Ok(path) = Path::parse(path, &limits()) else { continue };
        let _ = document.resolve(&path).and_then(|target| document.content(&target));
        let _ = Mask::new(&[path]).and_then(|mask| document.view(&root, Some(&mask), Some(50)));
    }
    for (small, least) in [(40, 0), (0, 64)] {
        let _ = found(&document, &Query { types: None, small, least });
    }
    for (min_chunk, max_chunk) in [(1, 1), (20, 400), (1 << 20, 1 << 30)] {
        if let Ok(plan) = document.plan(&Policy { min_chunk, max_chunk }) {
            let _ = cpb::metadata(&plan, &limits()).map(|metadata| metadata.encode());
        }
    }
    Ok(())
}

/// Asserts that fields found by `query` lie within the proto, and that their paths resolve to the types found.
fn found(document: &Document<'_>, query: &Query<'_>) -> Result<()> {
    for found in document.find(query)?.iter().take(200) {
        assert!(found.places.iter().all(|place| place.start <= place.end && place.end <= document.index.size()));
        let Ok(path) = Path::parse(found.path, &limits()) else { continue };
        if let Ok(Target::Message(message)) = document.resolve(&path) {
            assert_eq!(message.type_id, Some(found.type_id), "{}", found.path);
        }
    }
    Ok(())
}

/// Lists the children of `target`, and theirs, down to `depth` further levels.
fn look_around(document: &Document<'_>, target: &Target, depth: u32) -> Result<()> {
    let (children, total) = document.children(target, 0, 20)?;
    let _ = document.children(target, total / 2, 3)?;
    for child in children {
        let Ok(step) = Path::parse(child.step.trim_start_matches('.'), &limits()) else { continue };
        if let Ok(below) = document.resolve(&step) {
            let _ = document.content(&below);
            if depth > 0 {
                let _ = look_around(document, &below, depth - 1);
            }
        }
    }
    Ok(())
}

/// A chunked proto: its records, its metadata, the merged image and the index of that.
pub fn chunked(data: &[u8]) {
    let mut side = Vec::new();
    let Ok(chunked) = cpb::open(&Bytes(data), &mut side, &limits()) else { return };
    let (file, decoded) = (Bytes(data), Bytes(&side));
    let sources: [&dyn Source; 2] = [&file, &decoded];
    let records = RopeSource::new(&chunked.records, &sources);
    let Ok(image) = cpb::image(&chunked, &records, &SCHEMA, SCHEMA.type_named(ROOT), &limits()) else { return };
    let source = RopeSource::new(&image, &sources);
    let _ = scanner(64).and_then(|scanner| scan::index_source(scanner, &source));
    let _ = cpb::image(&chunked, &records, &Schema::default(), None, &limits());
}

/// The index of a tensor bundle.
pub fn bundle(data: &[u8]) {
    let Ok(bundle) = Bundle::open(&Bytes(data), &limits()) else { return };
    for number in 0..bundle.len() {
        let name = bundle.name(number).unwrap_or_default();
        assert!(!name.is_empty() && bundle.find(name) == Some(number));
        let Ok(placed) = bundle.tensor(number) else { continue };
        let _ = placed.shape();
        placed.slices.iter().for_each(|slice| drop(bundle.slice(name, slice)));
    }
}

/// A path.
pub fn path(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(path) = Path::parse(&text, &limits()) {
        let again = Path::parse(&path.to_string(), &limits()).map(|again| again == path);
        assert!(matches!(again, Ok(true)) || path.to_string().len() > limits().path, "{text:?}");
        let _ = Mask::new(&[path]);
    }
}

/// A rope.
pub fn rope(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    if let Ok(rope) = Rope::decode(&mut reader, &limits()) {
        let half = rope.slice(rope.len() / 3..rope.len() / 2);
        assert!(half.len() <= rope.len());
        let mut out = Vec::new();
        rope.encode(&mut out);
        assert!(Rope::decode(&mut Reader::new(&out, 0), &limits()).is_ok_and(|again| again == rope));
    }
}

/// The metadata of a chunked proto.
pub fn metadata(data: &[u8]) {
    if let Ok(metadata) = Metadata::decode(data, &limits()) {
        let again = Metadata::decode(&metadata.encode(), &limits());
        assert!(again.is_ok_and(|again| again == metadata));
    }
}

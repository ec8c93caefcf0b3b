//! The scanner, which builds the index of a proto in one pass over tags and lengths.
//!
//! The scanner reads nothing itself and takes pieces of a stream that may end anywhere. With random access, the caller
//! can skip payloads: [`Scanner::wants`] is the next offset that the scanner needs.

mod fields;
mod saved;

use std::sync::Arc;

use crate::error::{Kind, Result, WireError};
use crate::header;
use crate::index::{Builder, NodeRecord};
use crate::limits::Limits;
use crate::schema::{MISFIT, Schema, TypeId};
use crate::source::Source;

/// The default floor in bytes. The scanner skips smaller messages as a whole, and views scan them on demand.
pub const DEFAULT_FLOOR: u64 = 16 << 10;

/// Bytes of the first read with random access; the size doubles while reads are completely used.
const FIRST_READ: usize = 16 << 10;
/// Bytes of the largest read: large enough to be cheap, and small enough to stay in the cache of a processor core.
const LARGEST_READ: usize = 256 << 10;

/// The serialized index of the whole `source`; only tags, lengths and keys are read, and everything else is skipped.
pub fn index_source(mut scanner: Scanner, source: &dyn Source) -> Result<Vec<u8>> {
    let size = source.len();
    let mut buffer = vec![0; LARGEST_READ];
    let mut len = FIRST_READ;
    loop {
        let at = scanner.jump();
        if at >= size {
            return scanner.finish(size);
        }
        let left = usize::try_from(size - at).unwrap_or(usize::MAX);
        let Some(window) = buffer.get_mut(..len.min(left)) else { return scanner.finish(at) };
        source.read_into(at, window)?;
        scanner.feed(window)?;
        let jump = scanner.wants().saturating_sub(at + window.len() as u64);
        len = if jump > LARGEST_READ as u64 { FIRST_READ } else { (len * 2).min(LARGEST_READ) };
    }
}

/// Builds the index of one proto.
#[derive(Debug)]
pub struct Scanner {
    schema: Arc<Schema>,
    limits: Limits,
    floor: u64,
    builder: Builder,
    frames: Vec<Frame>,
    /// The offset of the next byte to parse, which is after skipped bytes and before pending bytes.
    position: u64,
    /// The number of bytes of the stream to skip before `position`.
    skip: u64,
    /// The number of bytes of a key to hash before `position`; they are part of `skip`.
    hash_left: u64,
    pending: Vec<u8>,
    /// The number of pending bytes that are needed to continue.
    need: usize,
    failed: bool,
}

/// An open message of the scan.
#[derive(Clone, Copy, Debug)]
struct Frame {
    type_id: Option<TypeId>,
    /// The field number in the parent.
    number: u32,
    start: u64,
    content: u64,
    /// The offset after the message; for a group, after the parent.
    end: u64,
    group: bool,
    /// The hash of the key so far; None when the parent records no keys.
    key: Option<u32>,
}

/// The result of processing a field.
enum Step {
    /// The field was processed, or its header was and the scan has entered it. The scan continues after this many
    /// bytes.
    Past(u64),
    /// The field must be in memory as a whole, which takes this many bytes.
    Need(usize),
}

impl Scanner {
    /// Makes a scanner for a message of type `root` of `schema`. Without a type, only the top level and groups are
    /// indexed.
    pub fn new(schema: Arc<Schema>, root: Option<TypeId>, floor: u64, limits: Limits) -> Result<Self> {
        let mut builder = Builder::new(&limits);
        let name = root.and_then(|root| schema.message(root)).map(|message| message.name.clone());
        builder.open(NodeRecord::default(), name.as_deref())?;
        let frame = Frame { type_id: root, number: 0, start: 0, content: 0, end: u64::MAX, group: false, key: None };
        Ok(Self {
            schema,
            limits,
            floor: floor.max(1),
            builder,
            frames: vec![frame],
            position: 0,
            skip: 0,
            hash_left: 0,
            pending: Vec::new(),
            need: 0,
            failed: false,
        })
    }

    /// The offset of the next byte that [`Scanner::feed`] expects.
    pub fn offset(&self) -> u64 {
        self.position - self.skip + self.pending.len() as u64
    }

    /// The offset of the next byte that the scan needs; [`Scanner::jump`] may skip the bytes before it.
    pub fn wants(&self) -> u64 {
        if self.hash_left > 0 { self.offset() } else { self.position + self.pending.len() as u64 }
    }

    /// Skips to [`Scanner::wants`] and returns this offset, at which the next piece must begin.
    pub fn jump(&mut self) -> u64 {
        if self.hash_left == 0 {
            self.skip = 0;
        }
        self.wants()
    }

    /// Skips the next `len` bytes if all of them are payload; otherwise returns false and changes nothing.
    #[inline]
    pub fn pass(&mut self, len: usize) -> bool {
        let passes = !self.failed && self.hash_left == 0 && self.skip >= len as u64;
        if passes {
            self.skip -= len as u64;
        }
        passes
    }

    /// Takes the next piece of the proto; pieces may end anywhere.
    pub fn feed(&mut self, mut piece: &[u8]) -> Result<()> {
        if self.failed {
            return Err(WireError::new(Kind::Unsupported, "this scan has failed; start again"));
        }
        while !piece.is_empty() {
            let taken = self.take(piece).map_err(|error| {
                self.failed = true;
                error.on(self.path())
            })?;
            piece = piece.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// The serialized index of a proto that ends after `size` bytes.
    pub fn finish(mut self, size: u64) -> Result<Vec<u8>> {
        self.close_finished(self.position)?;
        let cut = self.position > size || !self.pending.is_empty() || self.hash_left > 0 || self.frames.len() > 1;
        if self.failed || cut || self.position != size {
            let message = if cut {
                "the proto is cut off: it ends inside a field"
            } else {
                "the scan has not read the whole proto yet"
            };
            let start = self.frames.last().filter(|_| self.frames.len() > 1).map_or(self.position, |frame| frame.start);
            let path = self.path();
            return Err(WireError::corrupt(start.min(size), format!("{message} (after {size} bytes)")).on(path));
        }
        self.builder.close(size, size, true);
        Ok(self.builder.finish(size, self.floor))
    }

    /// The path of the innermost open message. Map entries have the path of their map, without a key.
    fn path(&self) -> String {
        let mut path = String::new();
        for (pair, ordinal) in self.frames.windows(2).zip(self.builder.ordinals().skip(1)) {
            let [parent, child] = pair else { continue };
            let number = child.number & !MISFIT;
            let field = self.schema.field(parent.type_id, child.number);
            let list = field.is_some_and(|field| field.repeated) && !self.schema.is_map_entry(child.type_id);
            path.push_str(if path.is_empty() { "" } else { "." });
            path.push_str(&field.map_or_else(|| number.to_string(), |field| field.name.clone()));
            if list {
                path.push_str(&format!("[{ordinal}]"));
            }
        }
        if path.is_empty() { "the root message".to_owned() } else { path }
    }

    /// Takes bytes from the front of `piece` and returns their number.
    fn take(&mut self, piece: &[u8]) -> Result<usize> {
        if self.skip > 0 {
            let n = usize::try_from(self.skip).map_or(piece.len(), |skip| skip.min(piece.len()));
            let skipped = piece.get(..n).unwrap_or_default();
            self.skip -= n as u64;
            self.hash(skipped)?;
            return Ok(n);
        }
        if self.pending.is_empty() {
            let n = self.parse(piece)?;
            let rest = piece.get(n..).unwrap_or_default();
            if n < piece.len() && self.skip == 0 && self.need > 0 {
                self.pending.extend_from_slice(rest);
                return Ok(piece.len());
            }
            return Ok(n);
        }
        let n = self.need.saturating_sub(self.pending.len()).min(piece.len());
        self.pending.extend_from_slice(piece.get(..n).unwrap_or_default());
        if self.pending.len() >= self.need {
            let mut held = std::mem::take(&mut self.pending);
            let parsed = self.parse(&held)?;
            held.drain(..parsed);
            self.pending = held;
        }
        Ok(n)
    }

    /// Parses the complete fields at the front of `bytes`, whose offset is `position`, and returns the number of parsed
    /// bytes. Sets `need` when more bytes are needed together, and `skip` when the rest can be skipped.
    fn parse(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut at = 0usize;
        self.need = 0;
        loop {
            self.close_finished(self.position)?;
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(at);
            }
            let Some(header) = header::read(rest, self.position)? else {
                self.need = rest.len() + 1;
                self.check_left(self.need as u64)?;
                return Ok(at);
            };
            match self.field(&header, rest)? {
                Step::Need(need) => {
                    self.need = need;
                    return Ok(at);
                }
                Step::Past(len) => {
                    self.position = self.position.saturating_add(len);
                    if len > rest.len() as u64 {
                        self.skip = len - rest.len() as u64;
                        let seen = rest.get(usize::from(header.head_len)..).unwrap_or_default();
                        self.hash(seen)?;
                        return Ok(bytes.len());
                    }
                    if self.hash_left > 0 {
                        let content = rest.get(usize::from(header.head_len)..len as usize).unwrap_or_default();
                        self.hash(content)?;
                    }
                    at += len as usize;
                }
            }
        }
    }

    /// Hashes the bytes of a key while they arrive.
    #[inline]
    fn hash(&mut self, bytes: &[u8]) -> Result<()> {
        if self.hash_left == 0 {
            return Ok(());
        }
        let n = usize::try_from(self.hash_left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if let Some(Frame { key: Some(key), .. }) = self.frames.last_mut() {
            *key = crc32c::crc32c_append(*key, bytes.get(..n).unwrap_or_default());
        }
        self.hash_left -= n as u64;
        if self.hash_left == 0 { self.close_finished(self.position) } else { Ok(()) }
    }

    fn check_left(&self, need: u64) -> Result<()> {
        match self.frames.last() {
            Some(frame) if need > frame.end - self.position => {
                Err(WireError::corrupt(self.position, "a field is truncated: its message ends inside it"))
            }
            _ => Ok(()),
        }
    }
}

//! A writer that collects records into chunks.

use std::io::Write;

use super::codec::{self, Codec};
use super::data;
use super::header::{ChunkKind, signature};
use super::layout::{self, CHUNK_HEADER};
use super::options::WriterOptions;
use super::walk::chunk_at;
use super::writer::{Sink, header_of, put_chunk};
use crate::error::{Kind, Result, WireError};
use crate::varint;

/// Bytes of memory counted per record on top of its content, as in the reference implementation.
const OVERHEAD: u64 = 8;

/// Collects records into chunks and writes the chunks to a [`Sink`].
#[derive(Debug)]
pub struct RecordWriter {
    options: WriterOptions,
    position: u64,
    sizes: Vec<u8>,
    ends: Vec<usize>,
    values: Vec<u8>,
    failed: bool,
}

impl RecordWriter {
    /// Makes a writer whose sink is at `position`: 0 for a new file, or the file's size to append to a file. It
    /// immediately writes the signature of a new file, or the initial padding of an existing file. The serialized
    /// `metadata` follow, unless they are None.
    pub fn new<S: Sink>(options: WriterOptions, position: u64, metadata: Option<&[u8]>, sink: &mut S) -> Result<Self> {
        let (sizes, ends, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut writer = Self { options, position, sizes, ends, values, failed: false };
        writer.guarded(|writer| writer.begin(metadata, sink))?;
        Ok(writer)
    }

    /// The position of the next record: the start of its chunk, and its index in the chunk.
    pub fn position(&self) -> (u64, u64) {
        (self.position, self.ends.len() as u64)
    }

    /// True if writing a record of `len` bytes completes a chunk; false if the record would be buffered.
    pub fn completes(&self, len: u64) -> bool {
        let with = self.held().saturating_add(len).saturating_add(2 * OVERHEAD);
        with > self.options.chunk_size()
    }

    /// Writes `record`, or buffers it until its chunk is full, and returns its position.
    pub fn write_record<S: Sink>(&mut self, record: &[u8], sink: &mut S) -> Result<(u64, u64)> {
        self.guarded(|writer| writer.add(record, sink))
    }

    /// Writes all buffered records and the final padding.
    pub fn flush<S: Sink>(&mut self, sink: &mut S) -> Result<()> {
        self.guarded(|writer| {
            writer.close_chunk(sink)?;
            writer.pad(writer.options.final_padding, sink)
        })
    }

    /// Runs `work` unless an earlier call failed: a partly written file cannot be repaired, so nothing more is written.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(WireError::new(Kind::Unsupported, "an earlier write failed, so the file is incomplete"));
        }
        let done = work(self);
        self.failed = done.is_err();
        done
    }

    fn begin<S: Sink>(&mut self, metadata: Option<&[u8]>, sink: &mut S) -> Result<()> {
        if self.position == 0 {
            let signature = signature();
            sink.write(&[&signature])?;
            self.position = signature.len() as u64;
        } else {
            self.reach_boundary(sink)?;
            self.pad(self.options.initial_padding, sink)?;
        }
        let Some(metadata) = metadata else { return Ok(()) };
        let options = self.foreign_options().set_serialized_metadata(metadata.to_vec());
        let data = encode_with_crate(options, [], ChunkKind::Metadata)?;
        self.put(ChunkKind::Metadata, &[&data], 0, metadata.len() as u64, sink)
    }

    /// Moves past a block header if the file ends inside a block header or directly after one.
    fn reach_boundary<S: Sink>(&mut self, sink: &mut S) -> Result<()> {
        let boundary = layout::round_up(self.position).unwrap_or(self.position);
        let zeros = vec![0; usize::try_from(boundary - self.position).unwrap_or(0)];
        sink.write(&[&zeros])?;
        self.position = boundary;
        Ok(())
    }

    fn add<S: Sink>(&mut self, record: &[u8], sink: &mut S) -> Result<(u64, u64)> {
        let size = record.len() as u64;
        let most = self.options.chunk_size();
        let held = self.held();
        if held > 0 && held.saturating_add(size).saturating_add(OVERHEAD) > most {
            self.close_chunk(sink)?;
        }
        let position = self.position();
        let full = |held: u64| held.saturating_add(OVERHEAD) > most;
        if position.1 == 0 && self.is_plain() && full(size.saturating_add(OVERHEAD)) {
            self.put_alone(record, sink)?;
            return Ok(position);
        }
        varint::write(size, &mut self.sizes);
        self.values.extend_from_slice(record);
        self.ends.push(self.values.len());
        if full(self.held()) {
            self.close_chunk(sink)?;
        }
        Ok(position)
    }

    fn held(&self) -> u64 {
        self.values.len() as u64 + OVERHEAD * self.ends.len() as u64
    }

    fn is_plain(&self) -> bool {
        self.options.compression.codec == Codec::None && !self.options.transpose
    }

    /// Writes a record that fills its chunk, without copying the record.
    fn put_alone<S: Sink>(&mut self, record: &[u8], sink: &mut S) -> Result<()> {
        let prefix = super::frame::prefix(record.len() as u64);
        self.put(ChunkKind::Simple, &[&prefix, record], 1, record.len() as u64, sink)
    }

    fn close_chunk<S: Sink>(&mut self, sink: &mut S) -> Result<()> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let (sizes, values) = (std::mem::take(&mut self.sizes), std::mem::take(&mut self.values));
        let ends = std::mem::take(&mut self.ends);
        let (records, decoded) = (ends.len() as u64, values.len() as u64);
        if self.options.transpose {
            let data = encode_with_crate(self.foreign_options(), cut(&values, &ends), ChunkKind::Transposed)?;
            return self.put(ChunkKind::Transposed, &[&data], records, decoded, sink);
        }
        let compression = self.options.compression;
        let (packed_sizes, packed) = (codec::pack(&compression, &sizes)?, codec::pack(&compression, &values)?);
        let mut front = vec![compression.codec.byte()];
        varint::write(packed_sizes.len() as u64, &mut front);
        self.put(ChunkKind::Simple, &[&front, &packed_sizes, &packed], records, decoded, sink)
    }

    fn put<S: Sink>(
        &mut self,
        kind: ChunkKind,
        data: &[&[u8]],
        records: u64,
        decoded: u64,
        sink: &mut S,
    ) -> Result<()> {
        let header = header_of(kind, data, records, decoded);
        self.position = put_chunk(&header, data, self.position, sink)?;
        Ok(())
    }

    /// Writes a padding chunk up to a multiple of `multiple`, unless the position already is a multiple.
    fn pad<S: Sink>(&mut self, multiple: u64, sink: &mut S) -> Result<()> {
        if multiple <= 1 || self.position.is_multiple_of(multiple) {
            return Ok(());
        }
        let end = layout::padded(self.position, multiple).ok_or_else(|| {
            WireError::new(Kind::Unsupported, format!("the file cannot be padded to a multiple of {multiple} bytes"))
        })?;
        let zeros = usize::try_from(layout::distance(self.position, end).saturating_sub(CHUNK_HEADER));
        let zeros = vec![0; zeros.map_err(|_| WireError::new(Kind::Limit, "the padding does not fit into memory"))?];
        self.put(ChunkKind::Padding, &[&zeros], 0, 0, sink)
    }

    /// The options for the `riegeli` crate, which makes the transposed chunks.
    fn foreign_options(&self) -> riegeli::WriterOptions {
        let compression = self.options.compression;
        let (codec, level) = match compression.codec {
            Codec::None => (riegeli::CompressionType::None, None),
            Codec::Brotli => (riegeli::CompressionType::Brotli, Some(compression.level)),
            Codec::Zstd => (riegeli::CompressionType::Zstd, Some(compression.level)),
            Codec::Snappy => (riegeli::CompressionType::Snappy, None),
        };
        let options = riegeli::WriterOptions::new()
            .compression(codec)
            .window_log(compression.window_log)
            .transpose(true)
            .chunk_size(self.options.chunk_size())
            .bucket_fraction(self.options.bucket_fraction);
        match level {
            Some(level) => options.compression_level(level),
            None => options,
        }
    }
}

fn cut<'a>(values: &'a [u8], ends: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut begin = 0;
    ends.iter().map(move |&end| {
        let record = values.get(begin..end).unwrap_or_default();
        begin = end;
        record
    })
}

/// The data of the only chunk of `kind` that the `riegeli` crate encodes from `records`.
fn encode_with_crate<'a>(
    options: riegeli::WriterOptions,
    records: impl IntoIterator<Item = &'a [u8]>,
    kind: ChunkKind,
) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    write_with_crate(options, records, &mut file)
        .map_err(|error| WireError::new(Kind::Unsupported, format!("these records cannot be transposed: {error}")))?;
    let chunk = chunk_at(&file[..], 64)?.filter(|chunk| chunk.header.kind == kind && chunk.end == file.len() as u64);
    let chunk = chunk.ok_or_else(|| WireError::new(Kind::Unsupported, "these records cannot be put into one chunk"))?;
    Ok(data::read_all(&file[..], &chunk)?)
}

fn write_with_crate<'a, W: Write>(
    options: riegeli::WriterOptions,
    records: impl IntoIterator<Item = &'a [u8]>,
    file: W,
) -> std::result::Result<(), riegeli::RiegeliError> {
    let mut writer = riegeli::RecordWriter::new(file, options)?;
    for record in records {
        writer.write_record(record)?;
    }
    writer.close()
}

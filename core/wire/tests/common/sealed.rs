//! Foreign bytes behind checksums that are as they should be, so that they are believed as far as they can be: what
//! a fuzzer cannot forge is put right for it.
//!
//! Inputs of several parts are those parts one after the other, each behind its length as a varint; the last has none.

use std::sync::{Arc, LazyLock};

use wire::metadata::Metadata;
use wire::plan::Plan;
use wire::reader::Reader;
use wire::riegeli::{ChunkHeader, ChunkKind, Next, RecordReader, RecordWriter, WriterOptions};
use wire::scan::Scanner;
use wire::{Limits, Result, Schema};

use super::schema::{ROOT, schema};
use super::tables::{self, Shape};
use super::{Bytes, bodies, corpus, riegeli};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(schema()));

/// Bytes of an index in front of the checksums of its pages.
pub const INDEX_HEADER: usize = 8 + 4 + 4 + 8 + 8 + 7 * 8;
const PAGE: usize = 64 << 10;

/// `parts` as one input.
pub fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let (last, front) = parts.split_last().unwrap();
    let mut out = Vec::new();
    for part in front {
        wire::varint::write(part.len() as u64, &mut out);
        out.extend_from_slice(part);
    }
    out.extend_from_slice(last);
    out
}

/// The next part of an input: what is there of it.
fn part<'a>(reader: &mut Reader<'a>) -> &'a [u8] {
    let len = reader.varint().unwrap_or(0);
    reader.take(len.min(reader.left() as u64)).unwrap_or_default()
}

/// All parts of an input, but at most `most`.
fn parts<'a>(reader: &mut Reader<'a>, most: usize) -> Vec<&'a [u8]> {
    std::iter::from_fn(|| (!reader.is_empty()).then(|| part(reader))).take(most).collect()
}

/// Puts the checksums of an index right whose sections begin at `body`.
pub fn seal_index(index: &mut [u8], body: usize) {
    for page in 0..(index.len() - body).div_ceil(PAGE) {
        let from = body + page * PAGE;
        let sum = crc32c::crc32c(&index[from..index.len().min(from + PAGE)]);
        index[INDEX_HEADER + page * 4..INDEX_HEADER + page * 4 + 4].copy_from_slice(&sum.to_le_bytes());
    }
    let head = crc32c::crc32c(&index[..body - 4]);
    index[body - 4..body].copy_from_slice(&head.to_le_bytes());
}

/// Offset at which the sections of a sound index begin.
pub fn index_body(index: &[u8]) -> usize {
    index.len() - section_lengths(index).iter().sum::<usize>()
}

fn section_lengths(index: &[u8]) -> Vec<usize> {
    let lengths = index[32..INDEX_HEADER].chunks(8);
    lengths.map(|length| u64::from_le_bytes(length.try_into().unwrap()) as usize).collect()
}

/// An index and its proto as the input of [`index`].
pub fn index_input(index: &[u8], proto: &[u8]) -> Vec<u8> {
    let mut at = index_body(index);
    let mut parts = vec![&index[8..32]];
    for len in section_lengths(index) {
        parts.push(&index[at..at + len]);
        at += len;
    }
    parts.push(proto);
    joined(&parts)
}

/// An index: its numbers, its sections, and the proto that it claims to be of.
pub fn index(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let numbers = part(&mut reader);
    let sections: Vec<&[u8]> = (0..7).map(|_| part(&mut reader)).collect();
    let mut index = b"pslindex".to_vec();
    index.extend((0..24).map(|at| numbers.get(at).copied().unwrap_or(0)));
    sections.iter().for_each(|section| index.extend_from_slice(&(section.len() as u64).to_le_bytes()));
    let body = sections.concat();
    index.resize(INDEX_HEADER + body.len().div_ceil(PAGE) * 4 + 4, 0);
    let at = index.len();
    index.extend(body);
    seal_index(&mut index, at);
    bodies::index(&index, reader.rest());
}

fn with_sum(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat()
}

/// A saved scan, and what it is fed.
pub fn scan(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let state = with_sum(part(&mut reader));
    let root = SCHEMA.type_named(ROOT);
    let Ok(scanner) = Scanner::load(&state, Arc::clone(&SCHEMA), root, bodies::limits()) else { return };
    let _ = go_on(scanner, reader.rest());
}

fn go_on(mut scanner: Scanner, data: &[u8]) -> Result<Vec<u8>> {
    let again = Scanner::load(&scanner.save()?, Arc::clone(&SCHEMA), SCHEMA.type_named(ROOT), bodies::limits())?;
    assert_eq!((again.offset(), again.save()?), (scanner.offset(), scanner.save()?));
    scanner.feed(data)?;
    let size = scanner.offset();
    scanner.finish(size)
}

/// A kept plan.
pub fn plan(data: &[u8]) {
    if let Ok(plan) = Plan::decode(&with_sum(data), &bodies::limits()) {
        let again = Plan::decode(&plan.encode(), &bodies::limits());
        assert!(again.is_ok_and(|again| again == plan));
    }
}

/// The index of a tensor bundle: how it is written, then its keys and values by turns; or one block, foreign as a whole.
pub fn table(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let how = reader.u8().unwrap_or(0);
    let shape = Shape { block: 1 + usize::from(how >> 4), share: how & 1 > 0, snappy: how & 2 > 0 };
    if how & 4 > 0 {
        let mut contents = Some(reader.rest().to_vec());
        let entries = vec![(vec![0xff; 8], Vec::new())];
        let replace = |block: &mut Vec<u8>| *block = contents.take().unwrap_or_else(|| block.clone());
        return bodies::bundle(&tables::table(&entries, &shape, replace));
    }
    let all = parts(&mut reader, 1000);
    let entries: Vec<_> = all.chunks_exact(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect();
    bodies::bundle(&tables::table(&entries, &shape, |_| {}));
}

/// A path, and a proto in which it is looked for.
pub fn view(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let path = part(&mut reader);
    bodies::view(path, reader.rest());
}

/// One chunk of a riegeli file: its kind, how many records it has, what they decode to, its data.
pub fn chunk(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let kind = ChunkKind::from_byte(reader.u8().unwrap_or(b'r'));
    let (records, decoded_size) = (reader.varint().unwrap_or(0), reader.varint().unwrap_or(0));
    // The file is padded to as many positions as it has records: not too much of that.
    let header = ChunkHeader { data_size: 0, data_hash: 0, kind, records: records % (1 << 16), decoded_size };
    let file = riegeli::resealed(&header, reader.rest());
    riegeli::chunks(&file);
    riegeli::through(&file);
}

/// A chunked proto: its records, the last of which is the metadata, where positions are put right.
pub fn merge(data: &[u8]) {
    let mut records: Vec<Vec<u8>> = parts(&mut Reader::new(data, 0), 64).into_iter().map(<[u8]>::to_vec).collect();
    if let Some(last) = records.pop() {
        let decoded = Metadata::decode(&last, &bodies::limits());
        let last = decoded.map(|metadata| placed(metadata, &records)).unwrap_or(last);
        records.push(last);
    }
    bodies::chunked(&corpus::framed(&records));
}

fn placed(mut metadata: Metadata, records: &[Vec<u8>]) -> Vec<u8> {
    for (info, position) in metadata.chunks.iter_mut().zip(corpus::positions(records)) {
        info.offset = position;
    }
    metadata.encode()
}

/// Options of a writer, and records that are written so: they are read as they were.
pub fn options(data: &[u8]) {
    let mut reader = Reader::new(data, 0);
    let text = String::from_utf8_lossy(part(&mut reader)).into_owned();
    let Ok(options) = WriterOptions::parse(&text) else { return };
    let records = parts(&mut reader, 100);
    // Padding is given in bytes, and windows in powers of two: neither is worth gigabytes here.
    let large = options.initial_padding.max(options.final_padding) > 1 << 20;
    if large || options.compression.window_log.is_some_and(|log| log > 20) {
        return;
    }
    let mut file = Vec::new();
    if written(options, &records, &mut file).is_ok() {
        assert_eq!(read(&file).unwrap(), records, "{text}");
    }
}

fn written(options: WriterOptions, records: &[&[u8]], file: &mut Vec<u8>) -> Result<()> {
    let mut writer = RecordWriter::new(options, 0, None, file)?;
    records.iter().try_for_each(|record| writer.write_record(record, file).map(drop))?;
    writer.flush(file)
}

fn read(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut reader = RecordReader::new(Bytes(file), Limits::default());
    let mut all = Vec::new();
    while let Some(next) = reader.next()? {
        match next {
            Next::Held => all.push(reader.held().to_vec()),
            Next::Direct(len) => {
                let mut record = vec![0; len as usize];
                reader.read_direct(&mut record)?;
                all.push(record);
            }
        }
    }
    reader.close().map(|()| all)
}

//! Every operation of a riegeli reader, tried on arbitrary bytes. No operation may panic, hang or hold more than the
//! limits allow.

use std::borrow::Cow;
use std::cell::Cell;

use wire::riegeli::writer::{header_of, put_chunk};
use wire::riegeli::{self as records, ChunkHeader, Chunks, Next, RecordReader, header};
use wire::source::Source;
use wire::{Limits, Result};

/// Limit in bytes of an unpacked chunk, for these tests.
pub const DECODED: u64 = 1 << 20;

/// Small limits, so that exceeding them shows.
pub fn limits() -> Limits {
    Limits { decoded: DECODED, ..Limits::default() }
}

/// Bytes that count how often they are read; a walk that does not come forward is noticed.
pub struct Patient<'a>(&'a [u8], Cell<u64>);

impl<'a> Patient<'a> {
    /// A source of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes, Cell::new(0))
    }
}

impl Source for Patient<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn stride(&self) -> u64 {
        // Both ways of reading, by the parity of the length.
        if self.0.len().is_multiple_of(2) { 1 << 16 } else { 1 << 18 }
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.1.set(self.1.get() + 1);
        // A chunk takes 40 bytes at least, and a few reads.
        assert!(self.1.get() < 1000 + self.0.len() as u64, "reading does not come forward");
        self.0.read(offset, len)
    }
}

/// Reads `bytes` in every way there is.
pub fn exercise(bytes: &[u8]) {
    chunks(bytes);
    let _ = records::last_record(&Patient::new(bytes));
    let _ = records::metadata(&Patient::new(bytes), &limits());
    through(bytes);
    for numeric in [0, 64, 65, bytes.len() as u64 / 2, bytes.len() as u64, u64::MAX] {
        let _ = records::find(&Patient::new(bytes), numeric);
        sought(bytes, numeric);
    }
}

/// Finds the chunks of `bytes`, and decodes them.
pub fn chunks(bytes: &[u8]) {
    for chunk in Chunks::new(&Patient::new(bytes), 0) {
        let Ok(chunk) = chunk else { break };
        let _ = records::verify(bytes, &chunk);
        if let Ok(decoded) = records::decode(bytes, &chunk, &limits()) {
            assert!(decoded.values().len() as u64 <= DECODED && decoded.len() as u64 <= DECODED / 8);
            assert_eq!(
                (0..decoded.len()).map(|i| decoded.get(i).unwrap().len()).sum::<usize>(),
                decoded.values().len()
            );
        }
        if let Ok(Some(spans)) = records::spans(bytes, &chunk, &limits()) {
            let end = spans.len().checked_sub(1).and_then(|last| spans.get(last)).map_or(0, |range| range.end);
            assert!(end <= chunk.header.data_size);
        }
    }
}

/// Reads to the end, getting over all damage.
pub fn through(bytes: &[u8]) {
    let mut reader = RecordReader::new(Patient::new(bytes), limits());
    let mut regions = Vec::new();
    loop {
        match step(&mut reader) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => match reader.recover() {
                Some(region) => regions.push((region.begin, region.end)),
                None => break,
            },
        }
    }
    let _ = reader.close();
    assert!(regions.iter().all(|(begin, end)| begin <= end && *end <= bytes.len() as u64), "{regions:?}");
    assert!(regions.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{regions:?}");
}

fn sought(bytes: &[u8], numeric: u64) {
    let mut reader = RecordReader::new(Patient::new(bytes), limits());
    let _ = reader.seek_numeric(numeric).and_then(|()| step(&mut reader));
    let _ = reader.seek_back().and_then(|_| step(&mut reader));
    let _ = reader.seek(numeric, 3).and_then(|()| step(&mut reader));
}

fn step(reader: &mut RecordReader<Patient<'_>>) -> Result<bool> {
    match reader.next()? {
        None => Ok(false),
        Some(Next::Held) => {
            assert!(reader.held().len() as u64 <= DECODED);
            Ok(true)
        }
        Some(Next::Direct(len)) => {
            let mut room = vec![0; usize::try_from(len).unwrap()];
            reader.read_direct(&mut room).map(|()| true)
        }
    }
}

/// A file of one chunk whose hashes are right, whatever is in it.
pub fn resealed(header: &ChunkHeader, data: &[u8]) -> Vec<u8> {
    let mut file = header::signature();
    let sealed = header_of(header.kind, &[data], header.records, header.decoded_size);
    put_chunk(&sealed, &[data], 64, &mut file).unwrap();
    file
}

//! A streaming decoder of compressed chunks, which only keeps a codec's window and the ends of records in memory.

use std::io::{self, BufRead, BufReader, Read};

use super::codec::{self, Codec};
use super::data;
use super::decode::{check, decode};
use super::fault::{Fault, Resume};
use super::header::{ChunkKind, Hasher};
use super::records::{bad, check_count, ends};
use super::walk::ChunkRef;
use crate::error::{Kind, WireError};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::source::Source;
use crate::varint::{self, Varint};

type Result<T, E = WireError> = std::result::Result<T, E>;

/// Bytes that are read or passed on at a time.
const PIECE: usize = 1 << 20;

/// Passes the records of `chunk` to `out`, in order and in pieces, and returns the end of each record.
///
/// The hash of the data is checked last. So `out` may have received bytes of a damaged chunk before an error.
pub fn decode_into<S: Source + ?Sized>(
    source: &S,
    chunk: &ChunkRef,
    limits: &Limits,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Vec<u64>, Fault> {
    check(chunk, limits)?;
    if chunk.header.kind == ChunkKind::Simple
        && let Some(ends) = streamed(source, chunk, limits, out)?
    {
        return Ok(ends);
    }
    let decoded = decode(source, chunk, &limits.in_memory())?;
    for piece in decoded.values().chunks(PIECE) {
        out(piece)?;
    }
    Ok(decoded.ends().to_vec())
}

/// Like [`decode_into`]; None when the chunk's codec cannot be read in pieces.
fn streamed<S: Source + ?Sized>(
    source: &S,
    chunk: &ChunkRef,
    limits: &Limits,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<Vec<u64>>, Fault> {
    check_count(chunk, limits)?;
    // This checks the size of the data, which `chunk_at` has found to be in the file.
    drop(data::buffer(source, chunk, 0)?);
    let mut input = BufReader::with_capacity(PIECE, Data::new(source, chunk));
    let done = records(&mut input, chunk, limits, out);
    if let Some(fault) = input.get_mut().fault.take() {
        return Err(fault);
    }
    match done {
        Ok(None) => Ok(None),
        Ok(Some(ends)) => input.into_inner().check().map(|()| Some(ends)),
        // The hash distinguishes damaged data from data that were malformed when written.
        Err(error) if error.kind() == Kind::Corrupt => {
            Err(data::verify(source, chunk).err().unwrap_or_else(|| bad(chunk, error)))
        }
        Err(error) => Err(Fault::new(error, Resume::At(chunk.end))),
    }
}

fn records(
    input: &mut impl BufRead,
    chunk: &ChunkRef,
    limits: &Limits,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Option<Vec<u64>>> {
    let codec = Codec::from_byte(byte(input)?, 0)?;
    if !codec.streams() {
        return Ok(None);
    }
    let packed = varint(input)?;
    let ends = {
        let mut sizes = input.take(packed);
        let size = varint(&mut sizes)?;
        let most = chunk.header.records.saturating_mul(varint::MAX_LEN as u64);
        if size > most {
            let message =
                format!("the sizes of {} records take {size} bytes, which is impossible", chunk.header.records);
            return Err(WireError::corrupt(1, message));
        }
        let mut bytes = Vec::new();
        codec::unpack_into(codec, sizes, size, limits, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        ends(Reader::new(&bytes, 1), chunk, chunk.header.decoded_size)?
    };
    let size = varint(input)?;
    if size != chunk.header.decoded_size {
        let message =
            format!("the records have {size} bytes, but the chunk's header announces {}", chunk.header.decoded_size);
        return Err(WireError::corrupt(packed, message));
    }
    codec::unpack_into(codec, input, size, limits, out)?;
    Ok(Some(ends))
}

fn byte(input: &mut impl Read) -> Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte).map_err(|_| WireError::corrupt(0, "the chunk's data end too early"))?;
    let [byte] = byte;
    Ok(byte)
}

fn varint(input: &mut impl Read) -> Result<u64> {
    let mut bytes = Vec::with_capacity(varint::MAX_LEN);
    loop {
        bytes.push(byte(input)?);
        match varint::read(&bytes) {
            Varint::Value(value, _) => return Ok(value),
            Varint::Overlong => return Err(WireError::corrupt(0, "a varint is longer than ten bytes")),
            Varint::Truncated => {}
        }
    }
}

/// The data of a chunk, which are hashed during reads. A fault is stored here, because an I/O error cannot contain it.
struct Data<'a, S: ?Sized> {
    source: &'a S,
    chunk: &'a ChunkRef,
    offset: u64,
    hasher: Hasher,
    fault: Option<Fault>,
}

impl<'a, S: Source + ?Sized> Data<'a, S> {
    fn new(source: &'a S, chunk: &'a ChunkRef) -> Self {
        Self { source, chunk, offset: 0, hasher: Hasher::default(), fault: None }
    }

    /// Reads to the end and fails unless all data match their hash.
    fn check(mut self) -> Result<(), Fault> {
        let mut rest = vec![0; PIECE];
        while matches!(self.read(&mut rest), Ok(1..)) {}
        match self.fault {
            Some(fault) => Err(fault),
            None => data::check_hash(self.chunk, self.hasher),
        }
    }
}

impl<S: Source + ?Sized> Read for Data<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.chunk.header.data_size.saturating_sub(self.offset);
        let len = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let into = into.get_mut(..len).unwrap_or_default();
        if let Err(fault) = data::fill(self.source, self.chunk, self.offset, into, &mut self.hasher) {
            self.fault = Some(fault);
            return Err(io::Error::other("the source failed"));
        }
        self.offset += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::{Compression, pack};
    use super::super::header::signature;
    use super::super::walk::chunk_at;
    use super::super::writer::{header_of, put_chunk};
    use super::*;

    const CODECS: [Codec; 4] = [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy];

    /// A file with one chunk of `records`; the chunk announces `said` bytes for their values.
    fn file(codec: Codec, records: &[Vec<u8>], said: u64) -> Vec<u8> {
        let compression = Compression { codec, level: 3, window_log: None };
        let mut sizes = Vec::new();
        records.iter().for_each(|record| varint::write(record.len() as u64, &mut sizes));
        let (sizes, values) = (pack(&compression, &sizes).unwrap().into_owned(), records.concat());
        let values = pack(&compression, &values).unwrap().into_owned();
        let mut front = vec![codec.byte()];
        varint::write(sizes.len() as u64, &mut front);
        let parts: [&[u8]; 3] = [&front, &sizes, &values];
        let header = header_of(ChunkKind::Simple, &parts, records.len() as u64, said);
        let mut file = signature();
        put_chunk(&header, &parts, 64, &mut file).unwrap();
        file
    }

    fn chunk(file: &[u8]) -> ChunkRef {
        let signature = chunk_at(file, 0).unwrap().unwrap();
        chunk_at(file, signature.end).unwrap().unwrap()
    }

    fn records(unit: usize) -> Vec<Vec<u8>> {
        (0..50u8).map(|n| vec![n; usize::from(n) * unit]).collect()
    }

    #[test]
    fn pieces_are_the_records() {
        let records = records(1000);
        let size = records.concat().len() as u64;
        for codec in CODECS {
            let file = file(codec, &records, size);
            let (mut out, mut longest) = (Vec::new(), 0);
            let ends = decode_into(&file[..], &chunk(&file), &Limits::default(), &mut |piece| {
                out.extend_from_slice(piece);
                longest = longest.max(piece.len());
                Ok(())
            });
            assert_eq!(out, records.concat(), "{codec:?}");
            let decoded = decode(&file[..], &chunk(&file), &Limits::default()).unwrap();
            assert_eq!(ends.unwrap(), decoded.ends());
            assert!(longest <= PIECE && out.len() > PIECE, "{codec:?} {longest}");
        }
    }

    #[test]
    fn damage_is_told_as_decoding_tells_it() {
        let records = records(20);
        let size = records.concat().len() as u64;
        for codec in CODECS {
            let sound = file(codec, &records, size);
            let chunk = chunk(&sound);
            let mut damaged = vec![file(codec, &records, size + 1), file(codec, &records, size - 1)];
            damaged.extend((chunk.begin + 40..chunk.end).step_by(41).take(60).map(|at| {
                let mut file = sound.clone();
                file[usize::try_from(at).unwrap()] ^= 4;
                file
            }));
            for file in damaged {
                let Ok(Some(chunk)) = chunk_at(&file[..], chunk.begin) else { continue };
                let whole = decode(&file[..], &chunk, &Limits::default()).unwrap_err().error;
                let fault = decode_into(&file[..], &chunk, &Limits::default(), &mut |_| Ok(())).unwrap_err().error;
                assert_eq!(fault.kind(), whole.kind(), "{codec:?} {fault} instead of {whole}");
                assert_eq!(fault.message().contains("hash"), whole.message().contains("hash"), "{fault} / {whole}");
            }
        }
    }

    #[test]
    fn a_receiver_that_fails_is_told_as_it_says() {
        let records = records(1000);
        let file = file(Codec::Zstd, &records, records.concat().len() as u64);
        let mut calls = 0;
        let fault = decode_into(&file[..], &chunk(&file), &Limits::default(), &mut |_| {
            calls += 1;
            Err(WireError::from_source("full"))
        });
        let error = fault.unwrap_err().error;
        assert_eq!((error.kind(), error.message(), calls), (Kind::Source, "full", 1));
    }

    #[test]
    fn only_what_has_to_be_held_is_bounded_by_what_may_be() {
        let records = vec![vec![7; 5 << 20]];
        let limits = Limits { held: 4 << 20, ..Limits::default() };
        for codec in CODECS {
            let file = file(codec, &records, 5 << 20);
            let done = decode_into(&file[..], &chunk(&file), &limits, &mut |_| Ok(()));
            match codec {
                Codec::Brotli | Codec::Zstd => assert_eq!(done.unwrap(), [5 << 20]),
                Codec::None | Codec::Snappy => assert_eq!(done.unwrap_err().error.kind(), Kind::Limit),
            }
        }
    }

    #[test]
    fn a_window_that_does_not_fit_is_refused() {
        let bytes: Vec<u8> = (0..4u32 << 20).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let limits = Limits { held: 1 << 20, ..Limits::default() };
        let packed = {
            let mut blob = Vec::new();
            let mut encoder = zstd::stream::Encoder::new(&mut blob, 1).unwrap();
            encoder.window_log(23).unwrap();
            std::io::Write::write_all(&mut encoder, &bytes).unwrap();
            encoder.finish().unwrap();
            blob
        };
        let read = |limits: &Limits| {
            let mut len = 0;
            codec::unpack_into(Codec::Zstd, &packed[..], bytes.len() as u64, limits, &mut |piece| {
                len += piece.len();
                Ok(())
            })
            .map(|()| len)
        };
        assert_eq!(read(&Limits::default()).unwrap(), bytes.len());
        assert_eq!(read(&limits).unwrap_err().kind(), Kind::Limit);
        // Large windows of brotli, here of 2^30 bytes, are not part of its RFC.
        let large = codec::unpack_into(Codec::Brotli, &[0x11, 0x1e, 0, 0][..], 1 << 30, &limits, &mut |_| Ok(()));
        assert_eq!(large.unwrap_err().kind(), Kind::Limit);
    }
}

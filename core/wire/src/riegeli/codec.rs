//! The compression codecs of blobs. A compressed blob begins with its decompressed size.

use std::borrow::Cow;
use std::io::{BufRead, Read, Write};

use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::reader::Reader;
use crate::varint;

/// Bytes that are decompressed at a time.
const PIECE: u64 = 1 << 20;
/// The largest window that zstd's decoder can be configured to allow.
const MAX_WINDOW_LOG: u32 = 31;

/// A compression codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stored without compression.
    None,
    /// `b`
    Brotli,
    /// `z`
    Zstd,
    /// `s`
    Snappy,
}

impl Codec {
    /// The codec written as `byte`, which is at `offset`.
    pub fn from_byte(byte: u8, offset: u64) -> Result<Self> {
        match byte {
            0 => Ok(Self::None),
            b'b' => Ok(Self::Brotli),
            b'z' => Ok(Self::Zstd),
            b's' => Ok(Self::Snappy),
            other => Err(WireError::corrupt(offset, format!("unknown compression number {other}"))),
        }
    }

    /// The codec's letter in a chunk.
    pub fn byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Brotli => b'b',
            Self::Zstd => b'z',
            Self::Snappy => b's',
        }
    }

    /// True if data of this codec can be read in pieces, with only a window of the data in memory.
    pub(super) fn streams(self) -> bool {
        matches!(self, Self::Brotli | Self::Zstd)
    }
}

/// A codec with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// The level of compression.
    pub level: i32,
    /// The logarithm of the window size; None lets the codec choose.
    pub window_log: Option<u32>,
}

/// The decompressed bytes of `blob`; there may be no more than the blob announces, nor more than the limit.
pub fn unpack<'a>(codec: Codec, mut blob: Reader<'a>, limits: &Limits) -> Result<Cow<'a, [u8]>> {
    if codec == Codec::None {
        return Ok(Cow::Borrowed(blob.rest()));
    }
    let at = blob.offset();
    let size = announced(codec, &mut blob, limits)?;
    let unpacked = match codec {
        Codec::None => None,
        Codec::Brotli => brotli(blob.rest(), size),
        Codec::Zstd => zstd(blob.rest(), size),
        Codec::Snappy => snap::raw::Decoder::new().decompress_vec(blob.rest()).ok(),
    };
    let whole = unpacked.filter(|bytes| bytes.len() as u64 == size);
    let wrong = || WireError::corrupt(at, format!("{codec:?} data do not decompress to the announced {size} bytes"));
    whole.map(Cow::Owned).ok_or_else(wrong)
}

/// Decompresses `packed`, which must give `size` bytes, into `out` in pieces; only for codecs that stream.
pub(super) fn unpack_into(
    codec: Codec,
    packed: impl BufRead,
    size: u64,
    limits: &Limits,
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let broken = || WireError::corrupt(0, format!("{codec:?} data do not unpack to the {size} bytes they announce"));
    let mut unpacked = stream(codec, packed, limits)?;
    let mut piece = vec![0; usize::try_from(size.clamp(1, PIECE)).unwrap_or(1)];
    let mut left = size;
    loop {
        let len = fill(&mut unpacked, &mut piece).map_err(|error| refused(&error, limits).unwrap_or_else(broken))?;
        left = left.checked_sub(len as u64).ok_or_else(broken)?;
        if len == 0 {
            break;
        }
        out(piece.get(..len).unwrap_or_default())?;
    }
    if left == 0 { Ok(()) } else { Err(broken()) }
}

fn stream<'a>(codec: Codec, mut packed: impl BufRead + 'a, limits: &Limits) -> Result<Box<dyn Read + 'a>> {
    let failed = |error: std::io::Error| WireError::new(Kind::Unsupported, error.to_string());
    if codec == Codec::Zstd {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(failed)?;
        decoder.window_log_max(limits.held.max(1 << 10).ilog2().min(MAX_WINDOW_LOG)).map_err(failed)?;
        return Ok(Box::new(decoder));
    }
    // A first byte that the RFC reserves means a large window; the next byte is its logarithm.
    if let Ok([0x11, log, ..]) = packed.fill_buf()
        && 1u64 << (log & 0x3f) > limits.held
    {
        return Err(too_large_window(limits));
    }
    Ok(Box::new(brotli::Decompressor::new(packed, 1 << 16)))
}

/// Reads from `from` until `piece` is full or the data end, and returns the number of bytes read.
fn fill(from: &mut dyn Read, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = piece.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// The error for data that need more memory than allowed; zstd's decoder only reports this in its message.
fn refused(error: &std::io::Error, limits: &Limits) -> Option<WireError> {
    error.to_string().contains("too much memory").then(|| too_large_window(limits))
}

fn too_large_window(limits: &Limits) -> WireError {
    let message = format!("decompressing needs a window of more than {} bytes; raise the limit", limits.held);
    WireError::new(Kind::Limit, message)
}

/// The decompressed size of a blob; fails if decompression could take more memory than allowed.
pub(super) fn announced(codec: Codec, blob: &mut Reader<'_>, limits: &Limits) -> Result<u64> {
    let at = blob.offset();
    let size = blob.varint()?;
    if size > limits.decoded {
        let message = format!(
            "a chunk decompresses to {size} bytes, but at most {} are allowed; raise the limit",
            limits.decoded
        );
        return Err(WireError::new(Kind::Limit, message).at(at));
    }
    // Bounds on the output per byte: a zstd block of 3 + 1 bytes repeats one byte 128 Ki times, and a snappy copy of 3
    // bytes gives 64 bytes. Brotli's output only grows while it is decoded.
    let ratio = match codec {
        Codec::None => 1,
        Codec::Brotli => u64::MAX,
        Codec::Zstd => 1 << 15,
        Codec::Snappy => 32,
    };
    let inner = if codec == Codec::Snappy { blob.clone().varint()? } else { size };
    if inner != size || size > ratio.saturating_mul(blob.left() as u64 + 1) {
        let message =
            format!("{} bytes of {codec:?} data claim to decompress to {size} bytes, which is impossible", blob.left());
        return Err(WireError::corrupt(at, message));
    }
    Ok(size)
}

fn brotli(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let reader = brotli::Decompressor::new(packed, 1 << 16);
    reader.take(size.saturating_add(1)).read_to_end(&mut unpacked).ok().map(|_| unpacked)
}

fn zstd(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut unpacked = Vec::with_capacity(usize::try_from(size).ok()?);
    let done = zstd::bulk::Decompressor::new().ok()?.decompress_to_buffer(packed, &mut unpacked);
    done.ok().map(|_| unpacked)
}

/// Compresses `bytes` into a blob.
pub fn pack<'a>(compression: &Compression, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    let mut blob = Vec::new();
    varint::write(bytes.len() as u64, &mut blob);
    let packed = match compression.codec {
        Codec::None => return Ok(Cow::Borrowed(bytes)),
        Codec::Brotli => pack_brotli(compression, bytes),
        Codec::Zstd => pack_zstd(compression, bytes),
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(bytes).map_err(std::io::Error::other),
    };
    let packed = packed.map_err(|error| {
        WireError::new(Kind::Unsupported, format!("compressing with {:?} failed: {error}", compression.codec))
    })?;
    blob.extend_from_slice(&packed);
    Ok(Cow::Owned(blob))
}

fn pack_brotli(compression: &Compression, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let level = u32::try_from(compression.level).unwrap_or(6);
    let window = compression.window_log.unwrap_or(22);
    let mut writer = brotli::CompressorWriter::new(Vec::new(), 1 << 16, level, window);
    writer.write_all(bytes)?;
    writer.flush()?;
    Ok(writer.into_inner())
}

fn pack_zstd(compression: &Compression, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(compression.level)?;
    if let Some(window) = compression.window_log {
        compressor.window_log(window)?;
    }
    compressor.compress(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 4] = [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy];

    fn packed(codec: Codec, bytes: &[u8]) -> Vec<u8> {
        pack(&Compression { codec, level: 1, window_log: None }, bytes).unwrap().into_owned()
    }

    #[test]
    fn what_is_packed_unpacks() {
        for codec in ALL {
            for bytes in [&b""[..], b"x", &[7; 300_000]] {
                let blob = packed(codec, bytes);
                let unpacked = unpack(codec, Reader::new(&blob, 0), &Limits::default()).unwrap();
                assert!(unpacked == bytes, "{codec:?} {}", bytes.len());
            }
        }
    }

    #[test]
    fn more_than_the_limit_is_not_unpacked() {
        let limits = Limits { decoded: 1000, ..Limits::default() };
        for codec in &ALL[1..] {
            let error = unpack(*codec, Reader::new(&packed(*codec, &[7; 1001]), 0), &limits).unwrap_err();
            assert_eq!(error.kind(), Kind::Limit);
            assert!(unpack(*codec, Reader::new(&packed(*codec, &[7; 1000]), 0), &limits).is_ok());
        }
    }

    #[test]
    fn a_size_that_lies_is_an_error() {
        for codec in &ALL[1..] {
            let honest = packed(*codec, &[7; 1000]);
            for lie in [999u64, 1001, 1 << 30] {
                let mut blob = Vec::new();
                varint::write(lie, &mut blob);
                blob.extend_from_slice(&honest[2..]);
                let error = unpack(*codec, Reader::new(&blob, 0), &Limits::default()).unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupt, "{codec:?} {lie}");
            }
        }
    }
}

//! The points of a compressed file: places from which inflating can begin without the bytes before.

use miniz_oxide::inflate::core::{BlockBoundaryState, DecompressorOxide};

use super::{Inflater, Phase, RING, WINDOW, Wrapper};
use crate::error::{Kind, Result, WireError};
use crate::reader::Reader;
use crate::varint;

/// Bytes of output between two points at first.
const SPACING: u64 = 1 << 20;
/// Most points. When there are twice as many, every second point is dropped, so that memory stays bounded.
const MOST: usize = 512;
/// Most bytes of output after a point, and thus the largest cost of reading a record.
const FARTHEST: u64 = 64 << 20;
/// Most bytes of output per byte of a file, once it inflates to more than `FREE`; compression bombs reach a thousand.
const RATIO: u64 = 64;
const FREE: u64 = 1 << 30;

/// A point between two blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The number of bytes inflated before this point.
    made: u64,
    /// The number of bytes of the file before this point.
    taken: u64,
    /// How many bits of the last byte belong to the next block, and these bits.
    bits: (u8, u8),
    /// The output before this point, as far as matches may refer to it.
    window: Vec<u8>,
}

/// The points of one file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    points: Vec<Point>,
    spacing: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self { points: Vec::new(), spacing: SPACING }
    }
}

impl Point {
    /// The number of bytes inflated before this point.
    pub fn made(&self) -> u64 {
        self.made
    }
}

impl Inflater {
    /// Restores the inflater as it was at `point`.
    pub fn at(wrapper: Wrapper, point: &Point) -> Self {
        let mut inflater = Self::new(wrapper);
        let (num_bits, bit_buf) = point.bits;
        let state = BlockBoundaryState { num_bits, bit_buf, ..BlockBoundaryState::default() };
        *inflater.decoder = DecompressorOxide::from_block_boundary_state(&state);
        inflater.at = point.window.len() % RING;
        inflater.ring.iter_mut().zip(&point.window).for_each(|(place, byte)| *place = *byte);
        (inflater.phase, inflater.taken, inflater.made) = (Phase::Body, point.taken, point.made);
        inflater
    }

    /// The current point if the inflater is between two blocks; else None.
    fn point(&self) -> Option<Point> {
        let state = self.decoder.block_boundary_state()?;
        let len = usize::try_from(self.made).unwrap_or(WINDOW).min(WINDOW);
        let from = self.at + RING - len;
        let window = (from..from + len).filter_map(|at| self.ring.get(at % RING)).copied().collect();
        Some(Point { made: self.made, taken: self.taken, bits: (state.num_bits, state.bit_buf), window })
    }
}

impl Points {
    /// Saves the current point of `inflater` if it is far enough from the last point.
    pub fn offer(&mut self, inflater: &Inflater) {
        if inflater.made.saturating_sub(self.last()) < self.spacing {
            return;
        }
        self.points.extend(inflater.point());
        if self.points.len() >= MOST {
            let mut keep = true;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing = self.spacing.saturating_mul(2);
        }
    }

    /// Fails with a `Limit` error if the file inflates to too many bytes, for its size or since its last point.
    pub fn check(&self, inflater: &Inflater) -> Result<()> {
        let reason = if inflater.made.saturating_sub(self.last()) > FARTHEST + self.spacing || self.spacing > FARTHEST {
            "the compressed file cannot be read by record, because its blocks are too long: use smaller or uncompressed files"
        } else if inflater.made > FREE.max(inflater.taken.saturating_mul(RATIO)) {
            "the compressed file expands to more than 1 GiB and more than 64 times its size: store it uncompressed"
        } else {
            return Ok(());
        };
        Err(WireError::new(Kind::Limit, reason).at(inflater.taken))
    }

    /// The last point that is not after byte `made` of the output; None if there is none.
    pub fn before(&self, made: u64) -> Option<&Point> {
        let behind = self.points.partition_point(|point| point.made <= made);
        behind.checked_sub(1).and_then(|last| self.points.get(last))
    }

    fn last(&self) -> u64 {
        self.points.last().map_or(0, |point| point.made)
    }

    /// The approximate memory in bytes.
    pub fn weight(&self) -> u64 {
        (self.points.len() * (size_of::<Point>() + WINDOW)) as u64
    }

    /// Appends the number of points, followed by all points.
    pub fn save(&self, out: &mut Vec<u8>) {
        varint::write(self.points.len() as u64, out);
        for point in &self.points {
            varint::write(point.made, out);
            varint::write(point.taken, out);
            out.extend_from_slice(&[point.bits.0, point.bits.1]);
            varint::write(point.window.len() as u64, out);
            out.extend_from_slice(&point.window);
        }
    }

    /// Reads the points that [`Points::save`] wrote; fails with a `Corrupt` error for anything else.
    pub fn load(reader: &mut Reader<'_>) -> Result<Self> {
        let mut loaded = Self::default();
        for _ in 0..reader.varint()? {
            let offset = reader.offset();
            let (made, taken, bits) = (reader.varint()?, reader.varint()?, (reader.u8()?, reader.u8()?));
            let len = reader.varint()?;
            let window = reader.take(len)?.to_vec();
            if bits.0 > 7 || window.len() > WINDOW || made <= loaded.last() || loaded.points.len() >= MOST {
                return Err(WireError::corrupt(offset, "the saved index of a compressed file is inconsistent"));
            }
            loaded.points.push(Point { made, taken, bits, window });
        }
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between_blocks(made: u64, taken: u64) -> Inflater {
        Inflater::at(Wrapper::Gzip, &Point { made, taken, bits: (3, 5), window: vec![7; WINDOW] })
    }

    #[test]
    fn points_are_bounded_and_stay_evenly_spaced() {
        let mut points = Points::default();
        (1..4000).for_each(|step| points.offer(&between_blocks(step * SPACING, step)));
        assert!(points.points.len() < MOST);
        let gaps: Vec<u64> = points.points.windows(2).map(|pair| pair[1].made - pair[0].made).collect();
        assert!(gaps.iter().all(|gap| *gap == 8 * SPACING), "{gaps:?}");
        let mut saved = Vec::new();
        points.save(&mut saved);
        let loaded = Points::load(&mut Reader::new(&saved, 0)).unwrap();
        assert_eq!(loaded.points, points.points);
        assert_eq!(points.before(8 * SPACING - 1), None);
        assert_eq!(points.before(17 * SPACING).unwrap().made, 16 * SPACING);
    }

    #[test]
    fn bombs_and_blocks_without_end_are_refused() {
        let points = Points::default();
        assert!(points.check(&between_blocks(FARTHEST + SPACING, 1)).is_ok());
        let error = points.check(&between_blocks(FARTHEST + SPACING + 1, 1)).unwrap_err();
        assert_eq!((error.kind(), error.message().contains("blocks are too long")), (Kind::Limit, true));
        let mut points = Points::default();
        (1..=1100).for_each(|step| points.offer(&between_blocks(step * SPACING, step)));
        assert!(points.check(&between_blocks(1100 * SPACING, 18 * SPACING)).is_ok());
        let error = points.check(&between_blocks(1100 * SPACING, 17 * SPACING)).unwrap_err();
        assert_eq!((error.kind(), error.message().contains("64 times")), (Kind::Limit, true));
    }

    #[test]
    fn saved_points_that_lie_are_refused() {
        for lie in
            [vec![1, 0, 0, 0, 0, 0], vec![1, 1, 1, 8, 0, 0], vec![1, 1, 1, 0, 0, 0xff, 0xff, 0x7f], vec![255, 255, 3]]
        {
            assert!(Points::load(&mut Reader::new(&lie, 0)).is_err(), "{lie:?}");
        }
    }
}

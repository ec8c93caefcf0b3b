//! The tiles of a tensor, whose elements may have any order, and basic slicing over the tiles.

use super::block::{Block, Dim};
use super::gather::gather;
use super::{Shared, Work, bytes_of, check_width, in_whole};
use crate::error::{Kind, Result, WireError};

/// Most tiles of a tensor.
const MOST: usize = 1 << 16;

/// A tile of a tensor.
pub struct Tile {
    /// The first index in each dimension.
    pub start: Vec<u64>,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The distance to the next element in `source` along each dimension, in elements.
    pub strides: Vec<u64>,
    /// The bytes of the elements.
    pub source: Shared,
}

/// A basic slice of a tensor; each list has one value per dimension.
pub struct Cut {
    /// The first index.
    pub starts: Vec<u64>,
    /// The distance to the next index.
    pub steps: Vec<u64>,
    /// The number of indices.
    pub counts: Vec<u64>,
}

pub(super) struct Gathered {
    parts: Vec<Part>,
    width: usize,
    size: u64,
}

struct Part {
    block: Block,
    last: u64,
    source: Shared,
}

impl Gathered {
    pub(super) fn new(mut tiles: Vec<Tile>, shape: &[u64], width: usize, cut: &Cut) -> Result<Self> {
        check_width(width)?;
        cut.check(shape)?;
        tiles.retain(|tile| !tile.shape.contains(&0));
        let volume = bytes_of(volume(shape)?, width)?;
        if volume > 0 {
            tiles.iter().try_for_each(|tile| tile.check(shape, width))?;
            check_cover(&tiles, shape)?;
        }
        let count = self::volume(&cut.counts)?;
        let size = bytes_of(count, width)?;
        let steps = row_major(&cut.counts);
        let parts = tiles.into_iter().filter(|_| size > 0).filter_map(|tile| {
            let block = tile.cut(cut, &steps)?;
            Some(Part { last: block.last(), block, source: tile.source })
        });
        Ok(Self { parts: parts.collect(), width, size })
    }
}

impl Work for Gathered {
    fn size(&self) -> u64 {
        self.size
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        in_whole(self.width, offset, buffer, |first, whole| {
            let range = first..first + (whole.len() / self.width) as u64;
            for part in self.parts.iter().filter(|part| part.block.to < range.end && range.start <= part.last) {
                let mut blocks = Vec::new();
                part.block.within(&range, &mut blocks);
                for mut block in blocks {
                    block.to -= first;
                    gather(&*part.source, self.width, block, whole)?;
                }
            }
            Ok(())
        })
    }
}

impl Cut {
    fn check(&self, shape: &[u64]) -> Result<()> {
        if [self.starts.len(), self.steps.len(), self.counts.len()] != [shape.len(); 3] {
            return Err(WireError::new(Kind::Syntax, format!("invalid slice: give {} dimensions", shape.len())));
        }
        let all = self.starts.iter().zip(&self.steps).zip(&self.counts).zip(shape);
        for (((start, step), count), length) in all {
            let last =
                count.checked_sub(1).map(|count| count.checked_mul(*step).and_then(|way| way.checked_add(*start)));
            if *step == 0 || last.is_some_and(|last| last.is_none_or(|last| last >= *length)) {
                let message =
                    format!("{count} indices from {start} in steps of {step} are out of range for length {length}");
                return Err(WireError::new(Kind::Syntax, message));
            }
        }
        Ok(())
    }
}

impl Tile {
    /// Fails unless the tile is within a tensor of `shape` and its elements are within its source.
    fn check(&self, shape: &[u64], width: usize) -> Result<()> {
        if [self.start.len(), self.shape.len(), self.strides.len()] != [shape.len(); 3] {
            return Err(bad(format!("invalid part of a tensor: give {} dimensions", shape.len())));
        }
        let mut last = Some(0u64);
        for (((start, length), stride), whole) in self.start.iter().zip(&self.shape).zip(&self.strides).zip(shape) {
            if start.checked_add(*length).is_none_or(|end| end > *whole) {
                return Err(bad(format!(
                    "a part of a tensor ({length} elements from {start}) does not fit into a dimension of length {whole}"
                )));
            }
            if *length > 1 && *stride == 0 {
                return Err(bad("elements of a tensor overlap".into()));
            }
            let way = length.saturating_sub(1).checked_mul(*stride);
            last = last.zip(way).and_then(|(last, way)| last.checked_add(way));
        }
        let end = last.and_then(|last| last.checked_add(1)?.checked_mul(width as u64));
        if end.is_some_and(|end| end <= self.source.len()) {
            return Ok(());
        }
        Err(bad(format!("a part of a tensor needs more bytes than the {} it has", self.source.len())))
    }

    /// The box of the elements of this tile that `cut` selects; None when it selects none. `steps` are the distances in
    /// the output between selected elements.
    fn cut(&self, cut: &Cut, steps: &[u64]) -> Option<Block> {
        let (mut from, mut to) = (0, 0);
        let mut dims = Vec::new();
        let own = self.start.iter().zip(&self.shape).zip(&self.strides);
        let wanted = cut.starts.iter().zip(&cut.steps).zip(&cut.counts).zip(steps);
        for (((begin, length), stride), (((start, step), count), apart)) in own.zip(wanted) {
            let first = begin.saturating_sub(*start).div_ceil(*step);
            let end = (begin + length).saturating_sub(*start).div_ceil(*step).min(*count);
            let count = end.checked_sub(first).filter(|count| *count > 0)?;
            from += (start + first * step - begin) * stride;
            to += first * apart;
            // The product only overflows for a dimension with a single index, which `Block::new` leaves out.
            dims.push(Dim { count, from: step.saturating_mul(*stride), to: *apart });
        }
        Some(Block::new(from, to, dims))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (own, others) = (self.start.iter().zip(&self.shape), other.start.iter().zip(&other.shape));
        own.zip(others).all(|((a, a_len), (b, b_len))| *a < b + b_len && *b < a + a_len)
    }
}

/// Fails unless every element of a tensor of `shape` is in exactly one of `tiles`, and all tiles are within the tensor.
fn check_cover(tiles: &[Tile], shape: &[u64]) -> Result<()> {
    if tiles.len() > MOST {
        return Err(WireError::new(
            Kind::Limit,
            format!("a tensor has {} parts, but at most {MOST} are allowed", tiles.len()),
        ));
    }
    let mut covered = 0u64;
    for tile in tiles {
        covered = covered.saturating_add(volume(&tile.shape)?);
    }
    let mut sorted: Vec<&Tile> = tiles.iter().collect();
    let along = busiest(&sorted, shape.len());
    let start = |tile: &Tile| tile.start.get(along).copied().unwrap_or_default();
    sorted.sort_by_key(|tile| start(tile));
    for (number, tile) in sorted.iter().enumerate() {
        let end = start(tile) + tile.shape.get(along).copied().unwrap_or(1);
        let mut near = sorted.iter().skip(number + 1).take_while(|other| start(other) < end);
        if near.any(|other| tile.overlaps(other)) {
            return Err(bad("two parts of a tensor overlap".into()));
        }
    }
    if covered == volume(shape)? {
        return Ok(());
    }
    Err(bad(format!("the parts of a tensor have {covered} elements, but the tensor has {}", volume(shape)?)))
}

/// The dimension in which the tiles have the most different starts.
fn busiest(tiles: &[&Tile], rank: usize) -> usize {
    let places = |dimension: usize| {
        let starts = tiles.iter().filter_map(|tile| tile.start.get(dimension));
        starts.collect::<std::collections::HashSet<_>>().len()
    };
    (0..rank).max_by_key(|dimension| places(*dimension)).unwrap_or_default()
}

/// The strides of a tensor of `shape` in row-major order, in elements.
fn row_major(shape: &[u64]) -> Vec<u64> {
    let mut steps: Vec<u64> = shape
        .iter()
        .rev()
        .scan(1u64, |step, length| {
            let own = *step;
            *step = step.saturating_mul(*length);
            Some(own)
        })
        .collect();
    steps.reverse();
    steps
}

/// The number of elements of a tensor of `shape`.
fn volume(shape: &[u64]) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let all = shape.iter().try_fold(1u64, |all, length| all.checked_mul(*length));
    all.ok_or_else(|| WireError::new(Kind::Limit, "a tensor has more than 2^64 elements, which is the limit"))
}

fn bad(message: String) -> WireError {
    WireError::new(Kind::Corrupt, message)
}

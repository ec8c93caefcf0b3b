//! Tensors in boxes, in any order of their elements, and what a basic slice selects of them.

use super::block::{Block, Dim};
use super::gather::gather;
use super::{Shared, Work, bytes_of, check_width, in_whole};
use crate::error::{Kind, Result, WireError};

/// Boxes that a tensor is taken to have at most.
const MOST: usize = 1 << 16;

/// A box of a tensor.
pub struct Tile {
    /// Where it begins, in each dimension.
    pub start: Vec<u64>,
    /// How long it is in each dimension.
    pub shape: Vec<u64>,
    /// How many elements further the next one lies, in each dimension.
    pub strides: Vec<u64>,
    /// Its elements.
    pub source: Shared,
}

/// What is wanted of a tensor: in each dimension `counts` indices, from `starts` on in steps of `steps`.
pub struct Cut {
    /// The first index.
    pub starts: Vec<u64>,
    /// How far it is to the next.
    pub steps: Vec<u64>,
    /// How many there are.
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
            return Err(WireError::new(Kind::Syntax, format!("a slice has to say {} dimensions", shape.len())));
        }
        let all = self.starts.iter().zip(&self.steps).zip(&self.counts).zip(shape);
        for (((start, step), count), length) in all {
            let last =
                count.checked_sub(1).map(|count| count.checked_mul(*step).and_then(|way| way.checked_add(*start)));
            if *step == 0 || last.is_some_and(|last| last.is_none_or(|last| last >= *length)) {
                let message = format!("{count} indices from {start} in steps of {step} are not among {length}");
                return Err(WireError::new(Kind::Syntax, message));
            }
        }
        Ok(())
    }
}

impl Tile {
    /// An error unless it lies in a tensor of `shape`, and its elements in its source.
    fn check(&self, shape: &[u64], width: usize) -> Result<()> {
        if [self.start.len(), self.shape.len(), self.strides.len()] != [shape.len(); 3] {
            return Err(bad(format!("a part of a tensor has to say {} dimensions", shape.len())));
        }
        let mut last = Some(0u64);
        for (((start, length), stride), whole) in self.start.iter().zip(&self.shape).zip(&self.strides).zip(shape) {
            if start.checked_add(*length).is_none_or(|end| end > *whole) {
                return Err(bad(format!("a part of a tensor, {length} from {start} on, is not within {whole}")));
            }
            if *length > 1 && *stride == 0 {
                return Err(bad("the elements of a tensor lie at the same place".into()));
            }
            let way = length.saturating_sub(1).checked_mul(*stride);
            last = last.zip(way).and_then(|(last, way)| last.checked_add(way));
        }
        let end = last.and_then(|last| last.checked_add(1)?.checked_mul(width as u64));
        if end.is_some_and(|end| end <= self.source.len()) {
            return Ok(());
        }
        Err(bad(format!("a part of a tensor does not lie within its {} bytes", self.source.len())))
    }

    /// The box of what `cut` selects of it; none where it selects nothing. `steps` are how far apart the selected
    /// elements belong.
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
            // A dimension that long that this overflows has one index, and is left out.
            dims.push(Dim { count, from: step.saturating_mul(*stride), to: *apart });
        }
        Some(Block::new(from, to, dims))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (own, others) = (self.start.iter().zip(&self.shape), other.start.iter().zip(&other.shape));
        own.zip(others).all(|((a, a_len), (b, b_len))| *a < b + b_len && *b < a + a_len)
    }
}

/// An error unless every element of a tensor of `shape` lies in exactly one of `tiles`, which all lie within it.
fn check_cover(tiles: &[Tile], shape: &[u64]) -> Result<()> {
    if tiles.len() > MOST {
        return Err(WireError::new(Kind::Limit, format!("a tensor in {} parts, more than {MOST}", tiles.len())));
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
    Err(bad(format!("the parts of a tensor have {covered} elements, and the tensor has {}", volume(shape)?)))
}

/// The dimension along which the tiles begin at the most places.
fn busiest(tiles: &[&Tile], rank: usize) -> usize {
    let places = |dimension: usize| {
        let starts = tiles.iter().filter_map(|tile| tile.start.get(dimension));
        starts.collect::<std::collections::HashSet<_>>().len()
    };
    (0..rank).max_by_key(|dimension| places(*dimension)).unwrap_or_default()
}

/// How far apart the elements of a tensor of `shape` lie, row by row.
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

/// How many elements a tensor of `shape` has.
fn volume(shape: &[u64]) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let all = shape.iter().try_fold(1u64, |all, length| all.checked_mul(*length));
    all.ok_or_else(|| WireError::new(Kind::Limit, "a tensor of more than 2^64 elements"))
}

fn bad(message: String) -> WireError {
    WireError::new(Kind::Corrupt, message)
}

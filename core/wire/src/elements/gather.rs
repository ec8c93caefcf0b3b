//! Gathering the elements of a box: long runs are read directly, and elements close together are read through windows.

use super::block::{Block, Dim};
use crate::error::Result;
use crate::source::Source;

/// A dimension of one element.
const ONE: Dim = Dim { count: 1, from: 1, to: 1 };

/// Copies the elements of `block` to `buffer`, which begins with place 0 of the output.
pub(super) fn gather(source: &dyn Source, width: usize, mut block: Block, buffer: &mut [u8]) -> Result<()> {
    // In the order of the source (not of the buffer), windows only move forwards.
    block.dims.sort_by_key(|dim| std::cmp::Reverse(dim.from));
    let gap = source.stride() / 64 / width as u64;
    let (mut reach, mut far) = (1u64, block.dims.len());
    for dim in block.dims.iter().rev() {
        if dim.from.saturating_sub(reach) > gap {
            break;
        }
        reach += (dim.count - 1) * dim.from;
        far -= 1;
    }
    let (outer, inner) = block.dims.split_at(far);
    let inner = if inner.is_empty() { &[ONE] } else { inner };
    let window = Window { start: 0, bytes: Vec::new(), end: 0 };
    let mut gather = Gather { source, width, reach, alone: inner.len() == 1, window, buffer };
    gather.jump(outer, inner, block.from, block.to)
}

struct Gather<'a> {
    source: &'a dyn Source,
    width: usize,
    /// The number of source elements that one cluster of close elements spans.
    reach: u64,
    /// True if such a cluster has only one dimension.
    alone: bool,
    window: Window,
    buffer: &'a mut [u8],
}

/// A read-ahead buffer: the elements from `start` on, but none from element `end` on.
struct Window {
    start: u64,
    bytes: Vec<u8>,
    end: u64,
}

impl Gather<'_> {
    /// Walks through the dimensions whose elements are far apart, and uses a window for each cluster.
    fn jump(&mut self, outer: &[Dim], inner: &[Dim], from: u64, to: u64) -> Result<()> {
        let Some((dim, rest)) = outer.split_first() else {
            self.window.end = from + self.reach;
            return self.walk(inner, from, to);
        };
        (0..dim.count).try_for_each(|i| self.jump(rest, inner, from + i * dim.from, to + i * dim.to))
    }

    fn walk(&mut self, dims: &[Dim], from: u64, to: u64) -> Result<()> {
        match dims {
            [] => Ok(()),
            [dim] => self.run(*dim, from, to),
            [dim, rest @ ..] => (0..dim.count).try_for_each(|i| self.walk(rest, from + i * dim.from, to + i * dim.to)),
        }
    }

    fn run(&mut self, dim: Dim, from: u64, to: u64) -> Result<()> {
        let width = self.width as u64;
        let dense = dim.from == 1 && dim.to == 1;
        if dense && (self.alone || dim.count * width >= self.source.stride()) {
            let place = part(self.buffer, to * width, dim.count * width);
            return self.source.read_into(from * width, place);
        }
        let mut done = 0;
        while done < dim.count {
            let bytes = self.window.at(self.source, from + done * dim.from, width)?;
            let there = (bytes.len() as u64 / width).saturating_sub(1) / dim.from + 1;
            let count = there.min(dim.count - done);
            let place = part(self.buffer, (to + done * dim.to) * width, ((count - 1) * dim.to + 1) * width);
            copy(bytes, dim, place, self.width);
            done += count;
        }
        Ok(())
    }
}

impl Window {
    /// The buffered bytes from `element` on, at least one element; reads them if the buffer does not have them.
    fn at(&mut self, source: &dyn Source, element: u64, width: u64) -> Result<&[u8]> {
        let known = element.checked_sub(self.start).is_some_and(|skip| skip < self.bytes.len() as u64 / width);
        if !known {
            let most = (source.stride() / width).max(1);
            let len = usize::try_from(most.min(self.end - element) * width).unwrap_or(usize::MAX);
            self.bytes.resize(len, 0);
            source.read_into(element * width, &mut self.bytes)?;
            self.start = element;
        }
        let skip = usize::try_from((element - self.start) * width).unwrap_or(usize::MAX);
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }
}

/// The `len` bytes of `buffer` at `offset`; they must exist.
fn part(buffer: &mut [u8], offset: u64, len: u64) -> &mut [u8] {
    let range = usize::try_from(offset).ok().zip(usize::try_from(offset + len).ok());
    range.and_then(|(start, end)| buffer.get_mut(start..end)).unwrap_or_default()
}

/// Copies each element of `bytes` along `dim` to its place in `buffer`, up to the last element that fits.
fn copy(bytes: &[u8], dim: Dim, buffer: &mut [u8], width: usize) {
    if dim.from == 1 && dim.to == 1 {
        buffer.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        return;
    }
    let from = usize::try_from(dim.from).unwrap_or(usize::MAX);
    let to = usize::try_from(dim.to).unwrap_or(usize::MAX);
    match width {
        1 => scatter::<1>(bytes, from, buffer, to),
        2 => scatter::<2>(bytes, from, buffer, to),
        4 => scatter::<4>(bytes, from, buffer, to),
        8 => scatter::<8>(bytes, from, buffer, to),
        _ => scatter::<16>(bytes, from, buffer, to),
    }
}

fn scatter<const WIDTH: usize>(bytes: &[u8], from: usize, buffer: &mut [u8], to: usize) {
    let elements = bytes.as_chunks::<WIDTH>().0.iter().step_by(from);
    let places = buffer.as_chunks_mut::<WIDTH>().0.iter_mut().step_by(to);
    places.zip(elements).for_each(|(place, element)| *place = *element);
}

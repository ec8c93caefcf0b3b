//! The tree of blocks, divided by the steps of names if these separate groups, else by repeats, else by neighbourhood.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::order::{NOWHERE, Nodes, get, put};
use super::repeats::repeats;
use crate::links::Links;

/// Most parts of a block.
pub const MOST: usize = 64;
/// Fewest nodes for which a repeat becomes a block.
const FEW: usize = 8;
/// Most steps of names that become blocks.
const DEEPEST: u32 = 24;
/// Most steps that all names of a block may share.
const SHARED: u32 = 64;
/// Most comparisons for all sequences of a graph.
const LOOKS: usize = 1 << 30;

/// The common property of a block's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The beginning of their names is the same.
    #[default]
    Group,
    /// They look the same.
    Repeat,
    /// They form one round of a repeat.
    Round,
    /// They are neighbours.
    Part,
}

/// A block of the tree, whose nodes are neighbours in the strip.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// The common property of its parts.
    pub kind: Kind,
    /// The enclosing block; for the root, the root itself.
    pub up: u32,
    /// The place of the first node in the strip.
    pub first: u32,
    /// The number of nodes.
    pub count: u32,
    /// The part of its nodes' names that the block represents, as a node and a range in the node's name. Without such a
    /// part, the first number is `u32::MAX`; for rounds and parts, the range then has the numbers of the first item and
    /// after the last item.
    pub label: (u32, u32, u32),
    /// The range of its parts in `Tree::parts`.
    pub parts: (u32, u32),
    /// The number of its items, which exceeds the number of parts if neighbouring items were combined into one part.
    pub items: u32,
}

/// All blocks, the root first.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The blocks.
    pub(super) blocks: Vec<Block>,
    /// The parts of all blocks, one block after the other.
    pub(super) parts: Vec<Part>,
}

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A node by its number; during construction, by its rank.
    Node(u32),
    /// A block by its number.
    Block(u32),
}

/// An item that becomes a part.
enum Item {
    Node(u32),
    Group { ranks: Vec<u32>, begin: usize, end: usize },
    Repeat(Vec<Vec<Item>>),
    Round(Vec<Item>),
}

enum Work {
    /// Divides nodes by the step of their names that begins at this position.
    Names(u32, Vec<u32>, usize, u32),
    /// Finds repeats in a sequence.
    Repeats(u32, Vec<Item>, u32),
    /// Places items, and combines neighbours if there are too many; the number is that of the first item.
    Place(u32, Vec<Item>, usize, u32),
}

pub(super) struct Builder<'b> {
    nodes: &'b Nodes<'b>,
    linked: &'b Links,
    tree: Tree,
    work: Vec<Work>,
    looks: usize,
    /// For each rank, its item in the current sequence.
    item_of: Vec<(u32, u32)>,
}

impl<'b> Builder<'b> {
    pub(super) fn tree(nodes: &'b Nodes<'b>, linked: &'b Links) -> Tree {
        let item_of = vec![(NOWHERE, 0); nodes.order.len()];
        let mut builder = Self { nodes, linked, tree: Tree::default(), work: Vec::new(), looks: LOOKS, item_of };
        builder.tree.blocks.push(Block::default());
        builder.work.push(Work::Names(0, (0..nodes.order.len() as u32).collect(), 0, 0));
        while let Some(work) = builder.work.pop() {
            match work {
                Work::Names(block, ranks, at, depth) => {
                    let items = builder.named(block, ranks, at, depth);
                    let items = builder.ordered(block, items);
                    builder.repeated(block, items, depth);
                }
                Work::Repeats(block, items, depth) => builder.repeated(block, items, depth),
                Work::Place(block, items, first, depth) => builder.place(block, items, first, depth),
            }
        }
        builder.tree
    }

    fn name(&self, rank: u32) -> &'b [u8] {
        self.nodes.names.get(rank as usize).copied().unwrap_or_default()
    }

    /// The groups by the step of the names at `at`, or by a later step if all names share the step. Nodes without names
    /// that keep neighbours together stay single.
    fn named(&mut self, block: u32, ranks: Vec<u32>, mut at: usize, depth: u32) -> Vec<Item> {
        let mut begin = at;
        for _ in 0..SHARED {
            if depth >= DEEPEST || ranks.len() < 2 {
                break;
            }
            let mut numbers: HashMap<&[u8], usize> = HashMap::new();
            let mut items: Vec<Item> = Vec::new();
            let (mut turns, mut before) = (0, usize::MAX);
            for rank in &ranks {
                let item = match step(self.name(*rank), at) {
                    Some(step) => {
                        let item = *numbers.entry(step).or_insert(items.len());
                        if item == items.len() {
                            items.push(Item::Group { ranks: Vec::new(), begin, end: at + step.len() });
                        }
                        item
                    }
                    None => {
                        items.push(Item::Node(*rank));
                        items.len() - 1
                    }
                };
                if let Some(Item::Group { ranks, .. }) = items.get_mut(item) {
                    ranks.push(*rank);
                }
                turns += usize::from(item != before);
                before = item;
            }
            if let [Item::Group { end, .. }] = items.as_slice() {
                at = *end;
                // The step becomes part of the block's name, unless the block is the whole graph.
                if let Some(block) = self.tree.blocks.get_mut(block as usize).filter(|_| block > 0) {
                    block.label.2 = at as u32;
                    begin = at;
                }
                continue;
            }
            if numbers.is_empty() || turns > 2 * items.len() + ranks.len() / 4 {
                break;
            }
            for item in &mut items {
                if let Item::Group { ranks, .. } = item
                    && let [rank] = ranks.as_slice()
                {
                    *item = Item::Node(*rank);
                }
            }
            return items;
        }
        ranks.into_iter().map(Item::Node).collect()
    }

    /// Collapses repeats among `items` and makes the results parts of `block`.
    fn repeated(&mut self, block: u32, items: Vec<Item>, depth: u32) {
        let is_plain = items.len() <= FEW && items.iter().all(|item| matches!(item, Item::Node(_)));
        if is_plain || items.len() < 2 {
            return self.place(block, items, 0, depth);
        }
        let classes: Vec<u64> = items.iter().map(|item| self.class(item)).collect();
        let gaps = self.gaps(block, &items);
        let mut items = items.into_iter();
        let (mut at, mut found) = (0, Vec::new());
        for each in repeats(&classes, &gaps, &mut self.looks) {
            let ahead = items.as_slice().get(each.start - at..).unwrap_or_default();
            let nodes = ahead.iter().take(each.period).all(|item| matches!(item, Item::Node(_)));
            if nodes && each.period * each.times < 4 {
                continue;
            }
            found.extend(items.by_ref().take(each.start - at));
            found.push(Item::Repeat((0..each.times).map(|_| items.by_ref().take(each.period).collect()).collect()));
            at = each.start + each.period * each.times;
        }
        found.extend(items);
        // A group or round that only consists of a repeat becomes this repeat. The whole graph has the repeat as its
        // part.
        if block > 0
            && let [Item::Repeat(_)] = found.as_slice()
            && let Some(Item::Repeat(rounds)) = found.pop()
        {
            if let Some(block) = self.tree.blocks.get_mut(block as usize) {
                block.kind = Kind::Repeat;
            }
            found = rounds.into_iter().map(round).collect();
        }
        self.place(block, found, 0, depth);
    }

    /// Makes `items` parts of `block`; combines neighbours if there are too many.
    fn place(&mut self, block: u32, items: Vec<Item>, first: usize, depth: u32) {
        let count = items.len() as u32;
        let items = if items.len() > MOST {
            self.gathered(block, items, first, depth)
        } else {
            self.parts(block, items, first, depth)
        };
        let start = self.tree.parts.len() as u32;
        self.tree.parts.extend(items);
        let end = self.tree.parts.len() as u32;
        if let Some(block) = self.tree.blocks.get_mut(block as usize) {
            block.parts = (start, end);
            block.items = count;
        }
    }

    fn parts(&mut self, block: u32, items: Vec<Item>, first: usize, depth: u32) -> Vec<Part> {
        let mut parts = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            let number = (first + at) as u32;
            parts.push(match item {
                Item::Node(rank) => Part::Node(rank),
                Item::Group { ranks, begin, end } => {
                    let label = (get(&ranks, 0), begin as u32, end as u32);
                    self.block(block, Kind::Group, label, |id| Work::Names(id, ranks, end, depth + 1))
                }
                Item::Repeat(rounds) => {
                    let label = (NOWHERE, number, number);
                    let rounds = rounds.into_iter().map(round).collect();
                    self.block(block, Kind::Repeat, label, |id| Work::Place(id, rounds, 0, depth))
                }
                Item::Round(items) => {
                    let label = (NOWHERE, number, number + 1);
                    self.block(block, Kind::Round, label, |id| Work::Repeats(id, items, depth))
                }
            });
        }
        parts
    }

    /// Blocks of neighbours, which end where few links cross; there are about as many blocks as items per block.
    fn gathered(&mut self, block: u32, items: Vec<Item>, first: usize, depth: u32) -> Vec<Part> {
        let gaps = self.gaps(block, &items);
        let count = items.len().isqrt().clamp(FEW, MOST / 2);
        let size = items.len().div_ceil(count);
        let all = items.len();
        let (mut parts, mut at, mut items) = (Vec::new(), 0, items.into_iter());
        while at < all {
            let (low, high) = ((at + size - size / 4).min(all), (at + size + size / 4).min(all));
            let even = |end: &usize| (gaps.get(*end).copied().unwrap_or(0), end.abs_diff(at + size));
            let end = if all - at <= size + size / 4 { all } else { (low..=high).min_by_key(even).unwrap_or(high) };
            let label = (NOWHERE, (first + at) as u32, (first + end) as u32);
            let some: Vec<Item> = items.by_ref().take(end - at).collect();
            parts.push(self.block(block, Kind::Part, label, |id| Work::Place(id, some, first + at, depth)));
            at = end;
        }
        parts
    }

    fn block(&mut self, up: u32, kind: Kind, label: (u32, u32, u32), work: impl FnOnce(u32) -> Work) -> Part {
        let id = self.tree.blocks.len() as u32;
        self.tree.blocks.push(Block { kind, up, label, ..Block::default() });
        self.work.push(work(id));
        Part::Block(id)
    }

    /// A hash of what an item looks like; for a group, its name without numbers, and its operators in any order.
    fn class(&self, item: &Item) -> u64 {
        let mut hasher = DefaultHasher::new();
        match item {
            Item::Node(rank) => return get(&self.nodes.classes, *rank as usize),
            Item::Group { ranks, begin, end } => {
                let name = self.name(get(ranks, 0)).get(*begin..*end).unwrap_or_default();
                name.iter().filter(|byte| !byte.is_ascii_digit()).for_each(|byte| byte.hash(&mut hasher));
                let mut sum = 0u64;
                for rank in ranks {
                    let mut each = DefaultHasher::new();
                    get(&self.nodes.ops, *rank as usize).hash(&mut each);
                    sum = sum.wrapping_add(each.finish());
                }
                (sum, ranks.len()).hash(&mut hasher);
            }
            Item::Repeat(_) | Item::Round(_) => {}
        }
        hasher.finish()
    }

    /// Calls `each` once per link between two of `items`, with the numbers of both: first the item that makes the
    /// value, then the one that takes it.
    fn links(&mut self, block: u32, items: &[Item], mut each: impl FnMut(usize, usize)) {
        for (at, item) in items.iter().enumerate() {
            walk(item, &mut |rank| put(&mut self.item_of, rank as usize, (block, at as u32)));
        }
        for (at, item) in items.iter().enumerate() {
            walk(item, &mut |rank| {
                let node = get(&self.nodes.order, rank as usize);
                for maker in self.linked.makers(node as usize).flatten() {
                    let rank = get(&self.nodes.rank, maker as usize);
                    let (other, from) = self.item_of.get(rank as usize).copied().unwrap_or((NOWHERE, 0));
                    if other == block && from as usize != at {
                        each(from as usize, at);
                    }
                }
            });
        }
    }

    /// Reorders `items` so that each comes after the items that it depends on, as a depth-first walk finishes them. A
    /// group is placed where its first node is, which may be before other items that it needs.
    fn ordered(&mut self, block: u32, items: Vec<Item>) -> Vec<Item> {
        if items.iter().all(|item| matches!(item, Item::Node(_))) {
            return items;
        }
        let mut sources: Vec<Vec<usize>> = items.iter().map(|_| Vec::new()).collect();
        self.links(block, &items, |from, to| {
            if let Some(sources) = sources.get_mut(to).filter(|sources| sources.last() != Some(&from)) {
                sources.push(from);
            }
        });
        let mut items: Vec<Option<Item>> = items.into_iter().map(Some).collect();
        let mut seen = vec![false; items.len()];
        let (mut order, mut stack) = (Vec::with_capacity(items.len()), Vec::new());
        for first in 0..items.len() {
            stack.push((first, 0));
            while let Some((item, at)) = stack.pop() {
                if at == 0 && std::mem::replace(seen.get_mut(item).unwrap_or(&mut true), true) {
                    continue;
                }
                match sources.get(item).and_then(|sources| sources.get(at)) {
                    Some(source) => stack.extend([(item, at + 1), (*source, 0)]),
                    None => order.extend(items.get_mut(item).and_then(Option::take)),
                }
            }
        }
        order
    }

    /// The number of links across the gap before each of `items`.
    fn gaps(&mut self, block: u32, items: &[Item]) -> Vec<u32> {
        let mut turns = vec![0i64; items.len() + 1];
        self.links(block, items, |from, to| {
            if from < to {
                turns.get_mut(from + 1).into_iter().for_each(|turn| *turn += 1);
                turns.get_mut(to + 1).into_iter().for_each(|turn| *turn -= 1);
            }
        });
        let mut links = 0i64;
        turns.iter().map(|turn| (links += turn, links.try_into().unwrap_or(u32::MAX)).1).collect()
    }
}

/// A round of a repeat: a single item, or a block of several items.
fn round(mut items: Vec<Item>) -> Item {
    match (items.len(), items.pop()) {
        (1, Some(item)) => item,
        (_, last) => {
            items.extend(last);
            Item::Round(items)
        }
    }
}

/// Calls `each` with the rank of every node of `item`.
fn walk(item: &Item, each: &mut dyn FnMut(u32)) {
    match item {
        Item::Node(rank) => each(*rank),
        Item::Group { ranks, .. } => ranks.iter().for_each(|rank| each(*rank)),
        Item::Repeat(rounds) => rounds.iter().flatten().for_each(|item| walk(item, each)),
        Item::Round(items) => items.iter().for_each(|item| walk(item, each)),
    }
}

/// The step of `name` at `at`, with the separator that ends it; None for the last step.
fn step(name: &[u8], at: usize) -> Option<&[u8]> {
    let rest = name.get(at..)?;
    let begin = rest.iter().position(|byte| !matches!(byte, b'/' | b'.' | b':'))?;
    let end = rest.get(begin..)?.iter().position(|byte| matches!(byte, b'/' | b'.' | b':'))?;
    rest.get(..begin + end + 1)
}

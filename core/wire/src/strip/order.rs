//! The nodes of a graph in an order in which they can be computed, and what each node looks like.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::Result;
use crate::find::Findings;
use crate::links::{Links, Ports, number, text};

/// Means that a node is not part of the graph.
pub(super) const NOWHERE: u32 = u32::MAX;
/// Largest distance to a maker that still affects what a node looks like.
const NEAR: u32 = 64;

/// The nodes of a graph.
pub(super) struct Nodes<'f> {
    /// The nodes by rank: each comes after the makers of its inputs, except in cycles.
    pub(super) order: Vec<u32>,
    /// The rank of each finding; `NOWHERE` for nodes of other graphs.
    pub(super) rank: Vec<u32>,
    /// The operator by rank; equal operators have the same number.
    pub(super) ops: Vec<u32>,
    /// The name by rank.
    pub(super) names: Vec<&'f [u8]>,
    /// The class by rank, which depends on the operator and the inputs, relative to the node.
    pub(super) classes: Vec<u64>,
}

impl<'f> Nodes<'f> {
    pub(super) fn of(found: &'f Findings, links: &Links, ports: &Ports, graph: u32) -> Result<Self> {
        let members: Vec<u32> =
            (0..found.len()).filter(|node| links.group_of(*node) == Some(graph)).map(|node| node as u32).collect();
        let order = sorted(links, &members, found.len());
        let mut rank = vec![NOWHERE; found.len()];
        for (at, node) in order.iter().enumerate() {
            put(&mut rank, *node as usize, at as u32);
        }
        let mut nodes = Self { order, rank, ops: Vec::new(), names: Vec::new(), classes: Vec::new() };
        let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
        for (at, node) in nodes.order.iter().enumerate() {
            let Some(message) = found.get(*node as usize) else { continue };
            let next = numbers.len() as u32;
            let op = *numbers.entry(operator(&message, ports)?).or_insert(next);
            nodes.ops.push(op);
            nodes.names.push(text(message.skeleton, &ports.name)?.unwrap_or_default());
            nodes.classes.push(class(links, &nodes.rank, *node, at as u32, op));
        }
        Ok(nodes)
    }
}

/// Bytes that identify the operator of a node: its text, or else its number and the numbers of its fields from
/// `ports.kinds` on.
fn operator(message: &crate::find::Found<'_>, ports: &Ports) -> Result<Vec<u8>> {
    let mut key = match text(message.skeleton, &ports.op)? {
        Some(text) => text.to_vec(),
        None => number(message.skeleton, &ports.op)?.unwrap_or_default().to_le_bytes().to_vec(),
    };
    if ports.kinds > 0 {
        let kinds = message.places.iter().filter(|place| place.number >= ports.kinds);
        key.extend(kinds.flat_map(|place| place.number.to_le_bytes()));
    }
    Ok(key)
}

/// A hash of the operator and of the distances to the makers of its inputs.
fn class(links: &Links, rank: &[u32], node: u32, at: u32, op: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    op.hash(&mut hasher);
    for maker in links.makers(node as usize) {
        // The first of several layers may take an input of the graph, where the others take from the layer before. So a
        // missing maker counts as distance 1.
        let distance = maker.map_or(1, |maker| at.wrapping_sub(get(rank, maker as usize)));
        distance.min(NEAR).hash(&mut hasher);
    }
    hasher.finish()
}

/// `members` in the order in which a walk towards the makers finishes them: each comes after its makers, except in
/// cycles. Nodes that take nothing, such as constants, come directly before the first node that takes their value.
fn sorted(links: &Links, members: &[u32], all: usize) -> Vec<u32> {
    let mut seen = vec![false; all];
    let mut order = Vec::with_capacity(members.len());
    let mut stack: Vec<(u32, usize)> = Vec::new();
    let is_source = |node: usize| links.makers(node).flatten().next().is_none() && !links.takers(node).is_empty();
    let (late, early): (Vec<u32>, Vec<u32>) = members.iter().partition(|node| is_source(**node as usize));
    for member in early.into_iter().chain(late) {
        if !std::mem::replace(seen.get_mut(member as usize).unwrap_or(&mut true), true) {
            stack.push((member, 0));
        }
        while let Some((node, slot)) = stack.pop() {
            let inputs = links.inputs(node as usize);
            let next = (slot..inputs.len()).find(|slot| seen.get(get(inputs, *slot) as usize) == Some(&false));
            let Some(next) = next else {
                order.push(node);
                continue;
            };
            stack.push((node, next + 1));
            let maker = get(inputs, next);
            put(&mut seen, maker as usize, true);
            stack.push((maker, 0));
        }
    }
    order
}

/// The item at `at`; the default if `at` is beyond the end.
pub(super) fn get<T: Copy + Default>(items: &[T], at: usize) -> T {
    items.get(at).copied().unwrap_or_default()
}

/// Replaces the item at `at`, if it exists.
pub(super) fn put<T>(items: &mut [T], at: usize, item: T) {
    if let Some(place) = items.get_mut(at) {
        *place = item;
    }
}

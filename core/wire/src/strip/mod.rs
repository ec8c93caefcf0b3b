//! A graph as a strip: its nodes in the order in which they are computed, divided into a tree of blocks.

mod order;
mod repeats;
mod tree;

use std::collections::{HashMap, HashSet, VecDeque};

use crate::error::Result;
use crate::find::Findings;
use crate::links::{Links, Ports, text, values};
use order::{NOWHERE, Nodes, get, put};
pub use tree::{Block, Kind, MOST, Part};
use tree::{Builder, Tree};

/// The nodes, and the facts that link them.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'g> {
    /// The nodes of all graphs.
    pub found: &'g Findings,
    /// The links between the nodes.
    pub links: &'g Links,
    /// The fields of the nodes.
    pub ports: &'g Ports,
}

/// Most links between two parts of a level that are listed one by one.
const MOST_EDGES: usize = 1000;
/// Most steps from a node down to a tensor in it.
const STEPS: usize = 8;
/// Bars of a profile.
const BARS: u64 = 24;

/// A graph that is divided into blocks.
#[derive(Debug)]
pub struct Strip {
    /// The nodes by place.
    order: Vec<u32>,
    /// The place of each finding; `NOWHERE` for nodes of other graphs.
    place: Vec<u32>,
    /// The operator by place.
    ops: Vec<u32>,
    tree: Tree,
    /// For each place, the elements in the weights of all nodes before it; the last number is the total.
    elements: Vec<u64>,
    /// For each place, the number of the node's largest tensor.
    heaviest: Vec<u32>,
    /// The values that no node makes and that are not tensors, as place and slot.
    free: Vec<(u32, u32)>,
}

/// The links between two parts of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The number of the part from which the links come; None for nodes outside the block.
    pub source: Option<u32>,
    /// The number of the part to which the links lead; None for nodes outside the block.
    pub target: Option<u32>,
    /// The number of links.
    pub count: u32,
    /// The first of the links: the node that makes the value, the node that takes it, and the slot.
    pub example: (u32, u32, u32),
}

/// The nodes on all paths between two places.
#[derive(Debug, Default)]
pub struct Section {
    /// The number of nodes.
    pub count: u32,
    /// The number of elements in their weights.
    pub elements: u64,
    /// Stretches of neighbouring nodes: the place of the first node, and the number of nodes.
    pub spans: Vec<(u32, u32)>,
    /// The first nodes.
    pub nodes: Vec<u32>,
    /// The names of values that these nodes take from other nodes, or that no node makes.
    pub inputs: Vec<Vec<u8>>,
    /// The names of these nodes' weights.
    pub weights: Vec<Vec<u8>>,
    /// The nodes in the second place whose values other nodes take, or no node takes.
    pub last: Vec<u32>,
}

/// The most items in each list of a section.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Most stretches.
    pub spans: usize,
    /// Most nodes, and most weights.
    pub nodes: usize,
    /// Most inputs, and most last nodes.
    pub ports: usize,
}

/// A tensor that may be a weight of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'t> {
    /// The name of the tensor.
    pub name: &'t str,
    /// The path of the message that contains the tensor; empty for a tensor that is only found by its name.
    pub path: &'t str,
    /// The number of elements.
    pub elements: u64,
}

impl Strip {
    /// Makes the strip of graph number `graph`.
    pub fn of(Graph { found, links, ports }: &Graph<'_>, graph: u32) -> Result<Self> {
        let nodes = Nodes::of(found, links, ports, graph)?;
        let mut tree = Builder::tree(&nodes, links);
        let (order, ops) = placed(&mut tree, &nodes);
        let mut place = vec![NOWHERE; found.len()];
        for (at, node) in order.iter().enumerate() {
            put(&mut place, *node as usize, at as u32);
        }
        let elements = vec![0; order.len() + 1];
        let heaviest = vec![NOWHERE; order.len()];
        Ok(Self { order, place, ops, tree, elements, heaviest, free: Vec::new() })
    }

    /// Finds the weights of nodes. These are tensors inside nodes, and tensors with the name of a value that no node
    /// makes. With `own`, they are also tensors with the name of the node; `scope` may be part of the names. A tensor
    /// counts for the first node that has it.
    pub fn weigh(&mut self, graph: &Graph<'_>, tensors: &[Tensor<'_>], scope: &str, own: bool) -> Result<()> {
        let mut counted = vec![false; tensors.len()];
        let mut weights = vec![(0u64, NOWHERE); self.order.len()];
        let held = self.held(graph.found, tensors);
        for (number, place) in &held {
            add(&mut weights, *place, *number, tensors, &mut counted);
        }
        let mut names: HashMap<&str, usize> = HashMap::new();
        for (number, tensor) in tensors.iter().enumerate() {
            names.entry(tensor.name).or_insert(number);
            if let Some(name) = tensor.name.strip_prefix(scope).and_then(|rest| rest.strip_prefix('/')) {
                names.entry(name).or_insert(number);
            }
        }
        let named = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|name| names.get(name)).copied();
        for (place, node) in self.order.iter().enumerate() {
            let Some(message) = graph.found.get(*node as usize) else { continue };
            let makers = graph.links.inputs(*node as usize);
            let (mut slot, free) = (0, &mut self.free);
            values(message.skeleton, graph.ports, &mut |value| {
                let is_free = !value.is_empty() && makers.get(slot as usize) == Some(&NOWHERE);
                match named(value).filter(|_| is_free) {
                    Some(number) => add(&mut weights, place, number, tensors, &mut counted),
                    None if is_free => free.push((place as u32, slot)),
                    None => {}
                }
                slot += 1;
            })?;
            if own && let Some(number) = text(message.skeleton, &graph.ports.name)?.and_then(named) {
                add(&mut weights, place, number, tensors, &mut counted);
            }
        }
        let mut sum = 0u64;
        for (place, (elements, heaviest)) in weights.into_iter().enumerate() {
            put(&mut self.elements, place, sum);
            put(&mut self.heaviest, place, heaviest);
            sum = sum.saturating_add(elements);
        }
        put(&mut self.elements, self.order.len(), sum);
        Ok(())
    }

    /// The tensors that are inside nodes, as number of the tensor and place of the node.
    fn held(&self, found: &Findings, tensors: &[Tensor<'_>]) -> Vec<(usize, usize)> {
        let nodes = self.order.iter().enumerate();
        let paths: HashMap<&str, usize> =
            nodes.filter_map(|(place, node)| Some((found.get(*node as usize)?.path, place))).collect();
        // In hostile input, paths may have as many steps as their keys have dots, so only `STEPS` are tried.
        let place_of = |path: &str| {
            let mut ends = path.rmatch_indices('.').take(STEPS).map(|(at, _)| at);
            ends.find_map(|end| paths.get(path.get(..end)?)).copied()
        };
        let all = tensors.iter().enumerate();
        all.filter_map(|(number, tensor)| Some((number, place_of(tensor.path)?))).collect()
    }

    /// The values that nodes from place `first` to `end` take, but that no node makes and that are no weights: node and
    /// slot.
    pub fn free(&self, first: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
        let begin = self.free.partition_point(|(place, _)| *place < first);
        let free = self.free.get(begin..).unwrap_or_default().iter().take_while(move |(place, _)| *place < end);
        free.map(|(place, slot)| (get(&self.order, *place as usize), *slot))
    }

    /// Block number `id`.
    pub fn block(&self, id: u32) -> Option<Block> {
        self.tree.blocks.get(id as usize).copied()
    }

    /// The parts of block `id`.
    pub fn parts(&self, id: u32) -> &[Part] {
        let (start, end) = self.block(id).unwrap_or_default().parts;
        self.tree.parts.get(start as usize..end as usize).unwrap_or_default()
    }

    /// The places of the nodes of a part: the first place, and the place after the last.
    pub fn span(&self, part: Part) -> (u32, u32) {
        match part {
            Part::Node(node) => {
                let place = self.place_of(node);
                (place, place.saturating_add(1))
            }
            Part::Block(id) => {
                let block = self.block(id).unwrap_or_default();
                (block.first, block.first + block.count)
            }
        }
    }

    /// The node at a place.
    pub fn node_at(&self, place: u32) -> Option<u32> {
        self.order.get(place as usize).copied()
    }

    /// The place of a node; `u32::MAX` for a node of another graph.
    pub fn place_of(&self, node: u32) -> u32 {
        self.place.get(node as usize).copied().unwrap_or(NOWHERE)
    }

    /// The blocks that contain a node, the whole graph first.
    pub fn trail(&self, node: u32) -> Vec<u32> {
        let place = self.place_of(node);
        let mut trail = vec![0];
        loop {
            let last = get(&trail, trail.len() - 1);
            let inner = self.parts(last).iter().find_map(|part| match part {
                Part::Block(id) if (self.span(*part).0..self.span(*part).1).contains(&place) => Some(*id),
                _ => None,
            });
            let Some(inner) = inner else { return trail };
            trail.push(inner);
        }
    }

    /// The number of elements in the weights of the nodes from place `first` to `end`.
    pub fn elements(&self, first: u32, end: u32) -> u64 {
        get(&self.elements, end as usize).saturating_sub(get(&self.elements, first as usize))
    }

    /// The number of elements from place `first` to `end` in several bars, each for neighbouring nodes.
    pub fn profile(&self, first: u32, end: u32) -> Vec<u64> {
        let count = u64::from(end.saturating_sub(first));
        let bars = count.min(BARS);
        let at = |bar: u64| first + (bar * count / bars.max(1)) as u32;
        (0..bars).map(|bar| self.elements(at(bar), at(bar + 1))).collect()
    }

    /// The number of the largest tensor at the node with the most elements from place `first` to `end`.
    pub fn heaviest(&self, first: u32, end: u32) -> Option<u32> {
        let held = (first..end).filter(|place| get(&self.heaviest, *place as usize) != NOWHERE);
        let place = held.max_by_key(|place| (self.elements(*place, place + 1), std::cmp::Reverse(*place)))?;
        self.heaviest.get(place as usize).copied()
    }

    /// The operators of the nodes from place `first` to `end`, the most frequent first: a node with it, and the number
    /// of such nodes.
    pub fn operators(&self, first: u32, end: u32, limit: usize) -> Vec<(u32, u32)> {
        let mut counts: HashMap<u32, (u32, u32)> = HashMap::new();
        for place in first..end {
            let count = counts.entry(get(&self.ops, place as usize)).or_insert((place, 0));
            count.1 += 1;
        }
        let mut found: Vec<(u32, u32)> = counts.into_values().collect();
        found.sort_by_key(|(place, count)| (std::cmp::Reverse(*count), *place));
        found.truncate(limit);
        found.iter().map(|(place, count)| (get(&self.order, *place as usize), *count)).collect()
    }

    /// The links between the parts of block `id`, and the links to nodes outside the block.
    pub fn edges(&self, links: &Links, id: u32) -> Vec<Edge> {
        let (first, end) = self.span(Part::Block(id));
        let mut owner = Vec::with_capacity((end - first) as usize);
        for (number, part) in self.parts(id).iter().enumerate() {
            let (first, end) = self.span(*part);
            owner.extend((first..end).map(|_| number as u32));
        }
        let owner_of =
            |node: u32| self.place_of(node).checked_sub(first).and_then(|at| owner.get(at as usize)).copied();
        let mut edges: HashMap<(Option<u32>, Option<u32>), Edge> = HashMap::new();
        let mut add = |source: Option<u32>, target: Option<u32>, example| {
            if source != target {
                let edge = edges.entry((source, target)).or_insert(Edge { source, target, count: 0, example });
                edge.count = edge.count.saturating_add(1);
            }
        };
        for (at, own) in owner.iter().enumerate() {
            let node = get(&self.order, first as usize + at);
            for (slot, maker) in links.makers(node as usize).enumerate() {
                if let Some(maker) = maker {
                    add(owner_of(maker), Some(*own), (maker, node, slot as u32));
                }
            }
            for (taker, slot) in links.takers(node as usize) {
                if owner_of(*taker).is_none() {
                    add(Some(*own), None, (node, *taker, *slot));
                }
            }
        }
        let mut found: Vec<Edge> = edges.into_values().collect();
        found.sort_by_key(|edge| (std::cmp::Reverse(edge.count), edge.source, edge.target));
        found.truncate(MOST_EDGES);
        found.sort_by_key(|edge| (edge.source, edge.target));
        found
    }

    /// The nodes on all paths from the nodes of one span of places to the nodes of another.
    pub fn section(&self, graph: &Graph<'_>, from: (u32, u32), to: (u32, u32), most: Most) -> Result<Section> {
        let Graph { found, links, ports } = *graph;
        let after = self.reached(from, |node, each| links.takers(node).iter().for_each(|(taker, _)| each(*taker)));
        let before = self.reached(to, |node, each| links.makers(node).flatten().for_each(each));
        let within = |place: u32| after.get(place as usize) == Some(&true) && before.get(place as usize) == Some(&true);
        let inside = |node: u32| within(self.place_of(node));
        let (mut section, mut inputs, mut weights) =
            (Section::default(), Names::new(most.ports), Names::new(most.nodes));
        for (place, node) in self.order.iter().enumerate().map(|(place, node)| (place as u32, *node)) {
            if !within(place) {
                continue;
            }
            section.count += 1;
            section.elements = section.elements.saturating_add(self.elements(place, place + 1));
            let room = section.spans.len() < most.spans;
            match section.spans.last_mut() {
                Some((first, count)) if *first + *count == place => *count += 1,
                _ if room => section.spans.push((place, 1)),
                _ => {}
            }
            if section.nodes.len() < most.nodes {
                section.nodes.push(node);
            }
            let (makers, mut slot) = (links.inputs(node as usize), 0);
            values(found.get(node as usize).map_or(&[], |node| node.skeleton), ports, &mut |name| {
                let maker = get(makers, slot as usize);
                // A maker without inputs is a constant, which belongs to the node that needs it.
                let is_outer = maker != NOWHERE && !inside(maker) && !links.inputs(maker as usize).is_empty();
                let is_free = maker == NOWHERE && self.free.binary_search(&(place, slot)).is_ok();
                if is_outer || is_free {
                    inputs.add(name);
                } else if maker == NOWHERE && !name.is_empty() {
                    weights.add(name);
                }
                slot += 1;
            })?;
            let takers = links.takers(node as usize);
            let leaves = takers.is_empty() || takers.iter().any(|(taker, _)| !inside(*taker));
            if leaves && (to.0..to.1).contains(&place) && section.last.len() < most.ports {
                section.last.push(node);
            }
        }
        (section.inputs, section.weights) = (inputs.listed, weights.listed);
        Ok(section)
    }

    /// The places to which links lead from a span, including the span itself.
    fn reached(&self, (first, end): (u32, u32), next: impl Fn(usize, &mut dyn FnMut(u32))) -> Vec<bool> {
        let mut seen = vec![false; self.order.len()];
        let mut waiting: VecDeque<u32> = (first..end).collect();
        waiting.iter().for_each(|place| put(&mut seen, *place as usize, true));
        while let Some(place) = waiting.pop_front() {
            let node = get(&self.order, place as usize);
            next(node as usize, &mut |other| {
                let place = self.place_of(other);
                if seen.get(place as usize) == Some(&false) {
                    put(&mut seen, place as usize, true);
                    waiting.push_back(place);
                }
            });
        }
        seen
    }
}

/// A list of different names, up to a largest number.
struct Names {
    seen: HashSet<Vec<u8>>,
    listed: Vec<Vec<u8>>,
    most: usize,
}

impl Names {
    fn new(most: usize) -> Self {
        Self { seen: HashSet::new(), listed: Vec::new(), most }
    }

    fn add(&mut self, name: &[u8]) {
        if self.listed.len() < self.most && !self.seen.contains(name) {
            self.seen.insert(name.to_vec());
            self.listed.push(name.to_vec());
        }
    }
}

/// Counts a tensor for the node at `place`, and keeps the node's largest tensor.
fn add(weights: &mut [(u64, u32)], place: usize, number: usize, tensors: &[Tensor<'_>], counted: &mut [bool]) {
    let elements = |number: usize| tensors.get(number).map_or(0, |tensor| tensor.elements);
    let Some((sum, heaviest)) = weights.get_mut(place) else { return };
    if counted.get(number) == Some(&false) {
        *sum = sum.saturating_add(elements(number));
    }
    put(counted, number, true);
    if *heaviest == NOWHERE || elements(*heaviest as usize) < elements(number) {
        *heaviest = number as u32;
    }
}

/// Assigns places to all nodes and blocks, and replaces ranks with node numbers in the parts. Returns the nodes and the
/// operators by place.
fn placed(tree: &mut Tree, nodes: &Nodes<'_>) -> (Vec<u32>, Vec<u32>) {
    let (mut order, mut ops) = (Vec::with_capacity(nodes.order.len()), Vec::with_capacity(nodes.order.len()));
    let mut stack = vec![(0u32, false)];
    let mut at = vec![0u32; tree.blocks.len()];
    while let Some((id, entered)) = stack.pop() {
        let Some(block) = tree.blocks.get_mut(id as usize) else { continue };
        if !entered {
            block.first = order.len() as u32;
        }
        let mut inner = None;
        let next = get(&at, id as usize);
        for number in block.parts.0 + next..block.parts.1 {
            put(&mut at, id as usize, number + 1 - block.parts.0);
            match tree.parts.get_mut(number as usize) {
                Some(Part::Node(rank)) => {
                    ops.push(get(&nodes.ops, *rank as usize));
                    *rank = get(&nodes.order, *rank as usize);
                    order.push(*rank);
                }
                Some(Part::Block(id)) => {
                    inner = Some(*id);
                    break;
                }
                None => {}
            }
        }
        block.count = order.len() as u32 - block.first;
        if let Some(inner) = inner {
            stack.push((id, true));
            stack.push((inner, false));
        }
    }
    for block in &mut tree.blocks {
        if block.label.0 != NOWHERE {
            block.label.0 = get(&nodes.order, block.label.0 as usize);
        }
    }
    (order, ops)
}

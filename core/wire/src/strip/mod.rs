//! A graph as a strip of blocks: its nodes in the order in which they are computed, put into a tree of blocks.

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

/// Nodes and what links them.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'g> {
    /// The nodes of all graphs.
    pub found: &'g Findings,
    /// Their links.
    pub links: &'g Links,
    /// Their fields.
    pub ports: &'g Ports,
}

/// Links between two parts of a level that are listed one by one.
const MOST_EDGES: usize = 1000;
/// Steps from a node down to a tensor in it.
const STEPS: usize = 8;
/// Bars of a profile.
const BARS: u64 = 24;

/// A graph, divided into blocks.
#[derive(Debug)]
pub struct Strip {
    /// Nodes by place.
    order: Vec<u32>,
    /// Place of each finding; `NOWHERE` for other graphs.
    place: Vec<u32>,
    /// Operator by place.
    ops: Vec<u32>,
    tree: Tree,
    /// Elements of the weights of all nodes before each place, and of all.
    elements: Vec<u64>,
    /// The largest tensor of the node at each place, by number.
    heaviest: Vec<u32>,
    /// Values that are made by no node and are no tensors, as place and slot.
    free: Vec<(u32, u32)>,
}

/// Links between two parts of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Number of the part that they come from; None for nodes outside of the block.
    pub source: Option<u32>,
    /// Number of the part that they lead to.
    pub target: Option<u32>,
    /// How many there are.
    pub count: u32,
    /// The first of them: the node that makes the value, and that which takes it in a slot.
    pub example: (u32, u32, u32),
}

/// Nodes on all ways between two places.
#[derive(Debug, Default)]
pub struct Section {
    /// Number of nodes.
    pub count: u32,
    /// Elements of their weights.
    pub elements: u64,
    /// Stretches of neighbours: place of the first, and how many.
    pub spans: Vec<(u32, u32)>,
    /// The first nodes.
    pub nodes: Vec<u32>,
    /// Names of values that they take from other nodes, or that no node makes.
    pub inputs: Vec<Vec<u8>>,
    /// Names of their weights.
    pub weights: Vec<Vec<u8>>,
    /// Those in the second place with values that others take, or nobody.
    pub last: Vec<u32>,
}

/// Most items in each list of a section.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Stretches.
    pub spans: usize,
    /// Nodes, and weights.
    pub nodes: usize,
    /// Inputs, and last nodes.
    pub ports: usize,
}

/// A tensor that may be a weight of nodes.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'t> {
    /// Its name.
    pub name: &'t str,
    /// Path of the message that holds it; empty for one that is found by its name alone.
    pub path: &'t str,
    /// Number of elements.
    pub elements: u64,
}

impl Strip {
    /// The strip of graph number `graph`.
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

    /// Finds the weights of nodes: tensors in them, and those that go by the name of a value that no node makes, or with
    /// `own` by that of the node; `scope` may be part of the names. A tensor counts for the first node that has it.
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

    /// Tensors that nodes hold: number and place.
    fn held(&self, found: &Findings, tensors: &[Tensor<'_>]) -> Vec<(usize, usize)> {
        let nodes = self.order.iter().enumerate();
        let paths: HashMap<&str, usize> =
            nodes.filter_map(|(place, node)| Some((found.get(*node as usize)?.path, place))).collect();
        // Paths of a stranger may have as many steps as their keys have dots.
        let place_of = |path: &str| {
            let mut ends = path.rmatch_indices('.').take(STEPS).map(|(at, _)| at);
            ends.find_map(|end| paths.get(path.get(..end)?)).copied()
        };
        let all = tensors.iter().enumerate();
        all.filter_map(|(number, tensor)| Some((number, place_of(tensor.path)?))).collect()
    }

    /// Values that nodes from place `first` to `end` take, but no node makes, and that are no weights: node and slot.
    pub fn free(&self, first: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
        let begin = self.free.partition_point(|(place, _)| *place < first);
        let free = self.free.get(begin..).unwrap_or_default().iter().take_while(move |(place, _)| *place < end);
        free.map(|(place, slot)| (get(&self.order, *place as usize), *slot))
    }

    /// Block number `id`.
    pub fn block(&self, id: u32) -> Option<Block> {
        self.tree.blocks.get(id as usize).copied()
    }

    /// Parts of block `id`.
    pub fn parts(&self, id: u32) -> &[Part] {
        let (start, end) = self.block(id).unwrap_or_default().parts;
        self.tree.parts.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Places of the nodes of a part: the first, and that behind the last.
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

    /// Place of a node; `u32::MAX` in another graph.
    pub fn place_of(&self, node: u32) -> u32 {
        self.place.get(node as usize).copied().unwrap_or(NOWHERE)
    }

    /// Blocks around a node, the root first.
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

    /// Elements of the weights of the nodes from place `first` to `end`.
    pub fn elements(&self, first: u32, end: u32) -> u64 {
        get(&self.elements, end as usize).saturating_sub(get(&self.elements, first as usize))
    }

    /// Elements from place `first` to `end` in some bars, for nodes that are neighbours each.
    pub fn profile(&self, first: u32, end: u32) -> Vec<u64> {
        let count = u64::from(end.saturating_sub(first));
        let bars = count.min(BARS);
        let at = |bar: u64| first + (bar * count / bars.max(1)) as u32;
        (0..bars).map(|bar| self.elements(at(bar), at(bar + 1))).collect()
    }

    /// The largest tensor of the node with the most elements from place `first` to `end`, by number.
    pub fn heaviest(&self, first: u32, end: u32) -> Option<u32> {
        let held = (first..end).filter(|place| get(&self.heaviest, *place as usize) != NOWHERE);
        let place = held.max_by_key(|place| (self.elements(*place, place + 1), std::cmp::Reverse(*place)))?;
        self.heaviest.get(place as usize).copied()
    }

    /// Operators of the nodes from place `first` to `end`, the most frequent first: a node, and how many.
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

    /// Links between the parts of block `id`, and to nodes outside of it.
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

    /// Nodes on all ways from the nodes of one span of places to those of another.
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
                // Without inputs it is a constant, which is part of what needs it.
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

    /// Places that links lead to from a span, itself among them.
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

/// Names, each once, up to a number.
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

/// Counts a tensor for the node at `place`, and keeps the largest one.
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

/// Gives all nodes and blocks their places, and parts the numbers of nodes; returns nodes and operators by place.
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

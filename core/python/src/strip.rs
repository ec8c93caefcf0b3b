//! `_core.Strip`: a graph whose nodes are in one row, divided into blocks.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::prelude::*;
use wire::find::Findings;
use wire::links::{Links, Ports, text, values};
use wire::strip::{Graph, Kind, Most, Part, Tensor};

use crate::errors::raise;

/// A graph that is divided into nested blocks; block 0 is the whole graph.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Strip {
    found: Arc<Findings>,
    links: Arc<Links>,
    ports: Arc<Ports>,
    strip: wire::strip::Strip,
}

/// A part of a block: the number of the block (None for a node) or of the node, and the place and number of its nodes.
type Place = (Option<u32>, u32, u32, u32);
/// A block: its kind, the enclosing block, the part of its nodes' names that it represents, and the range of its items.
type About<'f> = (&'static str, u32, Option<&'f [u8]>, (u32, u32));

impl Strip {
    pub(crate) fn new(
        (found, links, ports): (&Arc<Findings>, &Arc<Links>, &Arc<Ports>),
        graph: u32,
        tensors: &[(String, String, u64)],
        scope: &str,
        own: bool,
    ) -> wire::Result<Self> {
        let linked = Graph { found, links, ports };
        let mut strip = wire::strip::Strip::of(&linked, graph)?;
        let tensors: Vec<Tensor<'_>> =
            tensors.iter().map(|(name, path, elements)| Tensor { name, path, elements: *elements }).collect();
        strip.weigh(&linked, &tensors, scope, own)?;
        Ok(Self { found: Arc::clone(found), links: Arc::clone(links), ports: Arc::clone(ports), strip })
    }

    fn skeleton(&self, node: u32) -> &[u8] {
        self.found.get(node as usize).map_or(&[], |node| node.skeleton)
    }
}

#[pymethods]
impl Strip {
    /// Facts about block `id`; None if it does not exist.
    fn block(&self, py: Python<'_>, id: u32) -> PyResult<Option<About<'_>>> {
        let Some(block) = self.strip.block(id) else { return Ok(None) };
        let kind = match block.kind {
            Kind::Group => "group",
            Kind::Repeat => "repeat",
            Kind::Round => "round",
            Kind::Part => "part",
        };
        let (node, begin, end) = block.label;
        let name = text(self.skeleton(node), &self.ports.name).map_err(|error| raise(py, error))?;
        let label = name.and_then(|name| name.get(begin as usize..end as usize));
        Ok(Some((kind, block.up, label, (begin, end))))
    }

    /// The parts of block `id`, in order.
    fn parts(&self, id: u32) -> Vec<Place> {
        let places = self.strip.parts(id).iter().map(|part| {
            let (first, end) = self.strip.span(*part);
            match part {
                Part::Node(node) => (None, *node, first, end - first),
                Part::Block(id) => (Some(*id), self.strip.node_at(first).unwrap_or_default(), first, end - first),
            }
        });
        places.collect()
    }

    /// The number of items in block `id`; it exceeds the number of parts if a part combines several neighbouring items.
    fn item_count(&self, id: u32) -> u32 {
        self.strip.block(id).unwrap_or_default().items
    }

    /// The place of a node; None for a node of another graph.
    fn place(&self, node: u32) -> Option<u32> {
        Some(self.strip.place_of(node)).filter(|place| *place != u32::MAX)
    }

    /// The blocks that contain a node, the whole graph first.
    fn trail(&self, node: u32) -> Vec<u32> {
        self.strip.trail(node)
    }

    /// The number of elements in the weights of the nodes from place `first` to `end`: the total, and for a bar chart,
    /// the totals of neighbouring nodes.
    fn weights(&self, first: u32, end: u32) -> (u64, Vec<u64>) {
        (self.strip.elements(first, end), self.strip.profile(first, end))
    }

    /// The number of the largest tensor at the node with the most elements from place `first` to `end`; None without
    /// weights.
    fn heaviest(&self, first: u32, end: u32) -> Option<u32> {
        self.strip.heaviest(first, end)
    }

    /// The operators from place `first` to `end`, the most frequent first: a node with the operator, and how many have
    /// it.
    fn operators(&self, py: Python<'_>, first: u32, end: u32, limit: usize) -> Vec<(u32, u32)> {
        py.detach(|| self.strip.operators(first, end, limit))
    }

    /// The links between parts of block `id`: source and target (None for nodes outside the block) and number of links.
    /// Then an example, the first link: the node that makes the value, the node that takes it, and the slot.
    #[expect(clippy::type_complexity, reason = "a row of a table")]
    fn edges(&self, py: Python<'_>, id: u32) -> Vec<(Option<u32>, Option<u32>, u32, (u32, u32, u32))> {
        let edges = py.detach(|| self.strip.edges(&self.links, id));
        edges.into_iter().map(|edge| (edge.source, edge.target, edge.count, edge.example)).collect()
    }

    /// Up to `limit` values that the nodes from place `first` to `end` take, but that no node makes and that are no
    /// weights. Each has a node and a name, and each name occurs once.
    fn free(&self, py: Python<'_>, first: u32, end: u32, limit: usize) -> PyResult<Vec<(u32, Vec<u8>)>> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for (node, wanted) in self.strip.free(first, end) {
            if found.len() == limit {
                break;
            }
            let mut slot = 0;
            let mut name = Vec::new();
            values(self.skeleton(node), &self.ports, &mut |value| {
                if slot == wanted {
                    name = value.to_vec();
                }
                slot += 1;
            })
            .map_err(|error| raise(py, error))?;
            if seen.insert(name.clone()) {
                found.push((node, name));
            }
        }
        Ok(found)
    }

    /// Up to `limit` nodes from place `first` to `end` whose values no node takes.
    fn ends(&self, first: u32, end: u32, limit: usize) -> Vec<u32> {
        let nodes = (first..end).filter_map(|place| self.strip.node_at(place));
        nodes.filter(|node| self.links.takers(*node as usize).is_empty()).take(limit).collect()
    }

    /// The nodes on all paths from one span of places to another. The result has: their number; the number of elements
    /// in their weights; stretches of such nodes as place and length; the first nodes; the names of values that they
    /// take from other nodes; the names of their weights; and the last nodes. `most` has a limit for stretches, nodes
    /// and weights, and a limit for the others.
    #[expect(clippy::type_complexity, reason = "a section")]
    fn section(
        &self,
        py: Python<'_>,
        start: (u32, u32),
        end: (u32, u32),
        most: (usize, usize, usize),
    ) -> PyResult<(u32, u64, Vec<(u32, u32)>, Vec<u32>, Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<u32>)> {
        let (spans, nodes, values) = most;
        let graph = Graph { found: &self.found, links: &self.links, ports: &self.ports };
        let found = py
            .detach(|| self.strip.section(&graph, start, end, Most { spans, nodes, ports: values }))
            .map_err(|error| raise(py, error))?;
        Ok((found.count, found.elements, found.spans, found.nodes, found.inputs, found.weights, found.last))
    }
}

//! `_core.Links`: links between the nodes of graphs.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::prelude::*;
use wire::find::Findings;
use wire::links::{holder, made, takes, text, values};

use crate::errors::raise;
use crate::strip::Strip;

/// The nodes of all graphs of a proto, by their numbers among the findings, and the links between them.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Links {
    found: Arc<Findings>,
    links: Arc<wire::links::Links>,
    ports: Arc<wire::links::Ports>,
}

impl Links {
    pub(crate) fn new(found: Arc<Findings>, ports: wire::links::Ports) -> wire::Result<Self> {
        let links = wire::links::Links::of(&found, &ports)?;
        Ok(Self { found, links: Arc::new(links), ports: Arc::new(ports) })
    }

    fn path(&self, node: usize) -> &str {
        self.found.get(node).map_or("", |node| node.path)
    }

    fn named(&self, node: usize) -> wire::Result<&[u8]> {
        let Some(node) = self.found.get(node) else { return Ok(b"") };
        Ok(text(node.skeleton, &self.ports.name)?.unwrap_or_default())
    }

    fn listed(
        &self,
        py: Python<'_>,
        node: usize,
        limit: usize,
        visit: impl Fn(&[u8], &mut dyn FnMut(&[u8])) -> wire::Result<()>,
    ) -> PyResult<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        let skeleton = self.found.get(node).map_or(&[][..], |node| node.skeleton);
        visit(skeleton, &mut |name| {
            if found.len() < limit {
                found.push(name.to_vec());
            }
        })
        .map_err(|error| raise(py, error))?;
        Ok(found)
    }

    fn nodes(&self, graph: u32) -> impl Iterator<Item = usize> {
        let first = self.links.groups().get(graph as usize).map_or(0, |group| group.first);
        (first as usize..self.found.len()).filter(move |node| self.links.group_of(*node) == Some(graph))
    }
}

#[pymethods]
impl Links {
    /// The memory of the nodes and links in bytes.
    #[getter]
    fn held(&self) -> u64 {
        self.found.held() + self.links.held()
    }

    /// The name of `node` as bytes; empty if it has none.
    fn name(&self, py: Python<'_>, node: usize) -> PyResult<&[u8]> {
        self.named(node).map_err(|error| raise(py, error))
    }

    /// The number of graphs.
    #[getter]
    fn graph_count(&self) -> usize {
        self.links.groups().len()
    }

    /// Up to `limit` graphs from number `start` on: path, first node, and number of nodes.
    fn graphs(&self, start: usize, limit: usize) -> Vec<(&str, u32, u32)> {
        let groups = self.links.groups().iter().skip(start).take(limit);
        groups.map(|group| (holder(self.path(group.first as usize)), group.first, group.count)).collect()
    }

    /// The number of the graph at `path`; None when there is no such graph.
    fn graph(&self, path: &str) -> Option<usize> {
        self.links.groups().iter().position(|group| holder(self.path(group.first as usize)) == path)
    }

    /// The first node of `graph` whose path is `called`; else the first with this name; else the first that takes a
    /// value with this name.
    fn node(&self, py: Python<'_>, graph: u32, called: &str) -> PyResult<Option<usize>> {
        py.detach(|| {
            if let Some(node) = self.nodes(graph).find(|node| self.path(*node) == called) {
                return Ok(Some(node));
            }
            let mut taking = None;
            let spelled = spellings(called);
            for node in self.nodes(graph).filter(|_| !called.is_empty()) {
                let skeleton = self.found.get(node).map_or(&[][..], |node| node.skeleton);
                if text(skeleton, &self.ports.name)?.is_some_and(|name| shown(name) == called) {
                    return Ok(Some(node));
                }
                for bytes in spelled.iter().filter(|_| taking.is_none()) {
                    if takes(skeleton, &self.ports, bytes)? {
                        taking = Some(node);
                        break;
                    }
                }
            }
            Ok(taking)
        })
        .map_err(|error| raise(py, error))
    }

    /// Up to `limit` nodes of `graph` that have all `words` in their name or path, in any case.
    fn search(&self, py: Python<'_>, graph: u32, words: Vec<String>, limit: usize) -> PyResult<Vec<usize>> {
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        py.detach(|| {
            let mut found = Vec::new();
            for node in self.nodes(graph) {
                let called = shown(self.named(node)?).to_lowercase();
                let within = |word: &String| called.contains(word) || self.path(node).to_lowercase().contains(word);
                if found.len() < limit && words.iter().all(within) {
                    found.push(node);
                }
            }
            Ok(found)
        })
        .map_err(|error| raise(py, error))
    }

    /// Up to `limit` nodes of `graph` that take no value (if `taking` is False), or whose values no node takes.
    fn ends(&self, py: Python<'_>, graph: u32, taking: bool, limit: usize) -> Vec<usize> {
        py.detach(|| {
            let ends = |node: &usize| {
                if taking {
                    self.links.takers(*node).is_empty()
                } else {
                    self.links.makers(*node).flatten().next().is_none()
                }
            };
            self.nodes(graph).filter(ends).take(limit).collect()
        })
    }

    /// The names of up to `limit` values that `node` takes, by slot, as bytes.
    fn values(&self, py: Python<'_>, node: usize, limit: usize) -> PyResult<Vec<Vec<u8>>> {
        self.listed(py, node, limit, |skeleton, each| values(skeleton, &self.ports, each))
    }

    /// The names of up to `limit` values that `node` makes, as bytes.
    fn made(&self, py: Python<'_>, node: usize, limit: usize) -> PyResult<Vec<Vec<u8>>> {
        self.listed(py, node, limit, |skeleton, each| made(skeleton, &self.ports, each))
    }

    /// The blocks of `graph`, as a strip. `tensors` are its weights: name, path of the message, and number of elements
    /// of each; see `wire::strip::Strip::weigh`.
    fn strip(
        &self,
        py: Python<'_>,
        graph: u32,
        tensors: Vec<(String, String, u64)>,
        scope: &str,
        own: bool,
    ) -> PyResult<Strip> {
        let made = || Strip::new((&self.found, &self.links, &self.ports), graph, &tensors, scope, own);
        py.detach(made).map_err(|error| raise(py, error))
    }

    /// The makers of up to `limit` inputs of `node`, by slot, and the number of all inputs. The maker is None if no
    /// node makes the value.
    fn makers(&self, node: usize, limit: usize) -> (Vec<Option<u32>>, usize) {
        (self.links.makers(node).take(limit).collect(), self.links.makers(node).count())
    }

    /// Up to `limit` nodes that take values of `node`, each with its slot, and the number of all such nodes.
    fn takers(&self, node: usize, limit: usize) -> (Vec<(u32, u32)>, usize) {
        let takers = self.links.takers(node);
        (takers.iter().take(limit).copied().collect(), takers.len())
    }
}

/// `name` as text. Bytes that are not UTF-8 become `\xHH`, as in the Python function `schema.text_of`.
pub(crate) fn shown(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    Cow::Owned(out)
}

/// All byte strings for which `shown` returns `text`: each `\xHH` may be an escaped byte or these four characters.
fn spellings(text: &str) -> Vec<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find("\\x") {
        let (before, escape) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let byte = escape.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| *byte >= 0x80);
        let taken = if byte.is_some() { 4 } else { 2 };
        bytes.extend(byte);
        bytes.extend_from_slice(if byte.is_some() { b"" } else { b"\\x" });
        rest = escape.get(taken..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest.as_bytes());
    let mut found = vec![text.as_bytes().to_vec()];
    if found.first() != Some(&bytes) {
        found.push(bytes);
    }
    found
}

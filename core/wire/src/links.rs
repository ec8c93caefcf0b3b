//! Links between the nodes of graphs: which node makes a value that another node takes.

use std::collections::HashMap;

use crate::error::{Kind, Result, WireError};
use crate::fields::Fields;
use crate::find::Findings;
use crate::header::Wire;
use crate::key::Key;
use crate::varint::{self, Varint};

/// Deepest nesting of groups in a node.
const DEPTH: u32 = 100;
/// Means that no node makes the value.
const NOBODY: u32 = u32::MAX;

/// The fields of a node that contain its name and the names of its values; each has a number per step down from the
/// node.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// The field with the node's name.
    pub name: Vec<u32>,
    /// The field with the names of the values that the node makes.
    pub outputs: Vec<u32>,
    /// The fields with the names of the values that the node takes, in the order of their slots.
    pub inputs: Vec<Vec<u32>>,
    /// The field with the operator's name.
    pub op: Vec<u32>,
    /// Of the fields from this number on, the one that is set determines the operator. 0 if `op` has its name.
    pub kinds: u32,
    /// True when inputs are written as in TensorFlow, that is `node`, `node:output` and `^node`.
    pub qualified: bool,
    /// True when several nodes may make a value of the same name, and a node takes the latest one before it.
    pub ordered: bool,
    /// True when values have numbers instead of names; the numbers may be packed.
    pub numbers: bool,
}

/// The nodes of one graph, which follow each other among the findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The number of the first node among the findings.
    pub first: u32,
    /// Number of nodes.
    pub count: u32,
}

/// The links between the messages of a search; each message is a node of the graph that contains it.
#[derive(Debug, Default)]
pub struct Links {
    groups: Vec<Group>,
    group_of: Vec<u32>,
    /// The end of each node's inputs in `makers`.
    input_ends: Vec<u32>,
    /// The maker of each input; `NOBODY` where no node makes the value.
    makers: Vec<u32>,
    /// The end of each node's takers in `takers`.
    taker_ends: Vec<u32>,
    /// The nodes that take a value of a node, each with the slot.
    takers: Vec<(u32, u32)>,
}

/// The path of the message that contains the node at `path`.
pub fn holder(path: &str) -> &str {
    path.rfind('.').and_then(|at| path.get(..at)).unwrap_or("")
}

impl Links {
    /// Finds the links between all of `found` with the fields `ports`. Fails when a node is damaged or when there are
    /// too many nodes.
    pub fn of(found: &Findings, ports: &Ports) -> Result<Self> {
        let mut links = Self::default();
        links.group(found);
        links.link_inputs(found, ports)?;
        links.link_takers();
        Ok(links)
    }

    /// The memory of the links in bytes.
    pub fn held(&self) -> u64 {
        let held = size_of_val(self.groups.as_slice())
            + size_of_val(self.group_of.as_slice())
            + size_of_val(self.input_ends.as_slice())
            + size_of_val(self.makers.as_slice())
            + size_of_val(self.taker_ends.as_slice())
            + size_of_val(self.takers.as_slice());
        held as u64
    }

    /// The graphs, in the order of their first nodes.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The number of the graph that contains a node.
    pub fn group_of(&self, node: usize) -> Option<u32> {
        self.group_of.get(node).copied()
    }

    /// The makers of a node's inputs, slot by slot; None for a value that no node of the graph makes.
    pub fn makers(&self, node: usize) -> impl Iterator<Item = Option<u32>> {
        self.inputs(node).iter().map(|maker| (*maker != NOBODY).then_some(*maker))
    }

    /// The makers of a node's inputs as numbers, slot by slot; `u32::MAX` for a value that no node of the graph makes.
    pub fn inputs(&self, node: usize) -> &[u32] {
        slice(&self.makers, &self.input_ends, node)
    }

    /// The nodes that take a value of a node, each with the slot that takes it.
    pub fn takers(&self, node: usize) -> &[(u32, u32)] {
        slice(&self.takers, &self.taker_ends, node)
    }

    fn group(&mut self, found: &Findings) {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for node in 0..found.len() {
            let place = found.get(node).map_or("", |node| holder(node.path));
            let next = self.groups.len() as u32;
            let number = *numbers.entry(place).or_insert(next);
            if number == next {
                self.groups.push(Group { first: node as u32, count: 0 });
            }
            if let Some(group) = self.groups.get_mut(number as usize) {
                group.count += 1;
            }
            self.group_of.push(number);
        }
    }

    fn link_inputs(&mut self, found: &Findings, ports: &Ports) -> Result<()> {
        let mut makers: HashMap<(u32, Key<'_>), u32> = HashMap::new();
        let mut early: Vec<(usize, u32, Key<'_>)> = Vec::new();
        for (node, group) in self.group_of.iter().enumerate() {
            let Some(message) = found.get(node) else { continue };
            for inputs in &ports.inputs {
                visit(message.skeleton, inputs, ports.numbers, &mut |value| {
                    let value = if ports.qualified { unqualified(value) } else { value };
                    let maker = makers.get(&(*group, value)).copied();
                    if maker.is_none() && !ports.ordered {
                        early.push((self.makers.len(), *group, value));
                    }
                    self.makers.push(maker.unwrap_or(NOBODY));
                })?;
            }
            if self.makers.len() >= NOBODY as usize {
                return Err(WireError::new(Kind::Limit, "the graph has too many links"));
            }
            self.input_ends.push(self.makers.len() as u32);
            visit(message.skeleton, &ports.outputs, ports.numbers, &mut |value| {
                makers.insert((*group, value), node as u32);
            })?;
        }
        for (at, group, value) in early {
            if let (Some(place), Some(maker)) = (self.makers.get_mut(at), makers.get(&(group, value))) {
                *place = *maker;
            }
        }
        Ok(())
    }

    /// Reverses the links: counts the takers of each node, then writes each taker at its place.
    fn link_takers(&mut self) {
        let mut ends = vec![0u32; self.group_of.len()];
        for maker in &self.makers {
            if let Some(count) = ends.get_mut(*maker as usize) {
                *count += 1;
            }
        }
        let mut begin = 0;
        for end in &mut ends {
            (*end, begin) = (begin, begin + *end);
        }
        self.takers = vec![(0, 0); begin as usize];
        for node in 0..self.group_of.len() {
            for (slot, maker) in slice(&self.makers, &self.input_ends, node).iter().enumerate() {
                let Some(at) = ends.get_mut(*maker as usize) else { continue };
                if let Some(place) = self.takers.get_mut(*at as usize) {
                    *place = (node as u32, slot as u32);
                }
                *at += 1;
            }
        }
        self.taker_ends = ends;
    }
}

/// The text at `fields` in a node's `skeleton`; the last text if there are several, None if there is none.
pub fn text<'f>(skeleton: &'f [u8], fields: &[u32]) -> Result<Option<&'f [u8]>> {
    let mut found = None;
    visit(skeleton, fields, false, &mut |value| {
        if let Key::Text(text) = value {
            found = Some(text);
        }
    })?;
    Ok(found)
}

/// The number at `fields` in a node's `skeleton`; the last number if there are several, None if there is none.
pub fn number(skeleton: &[u8], fields: &[u32]) -> Result<Option<u64>> {
    let mut found = None;
    visit(skeleton, fields, true, &mut |value| {
        if let Key::Number(number) = value {
            found = Some(number);
        }
    })?;
    Ok(found)
}

/// Calls `each` with the names of the values that a node takes, slot by slot.
pub fn values(skeleton: &[u8], ports: &Ports, each: &mut dyn FnMut(&[u8])) -> Result<()> {
    for inputs in &ports.inputs {
        visit(skeleton, inputs, ports.numbers, &mut |value| named(value, each))?;
    }
    Ok(())
}

/// Calls `each` with the names of the values that a node makes.
pub fn made(skeleton: &[u8], ports: &Ports, each: &mut dyn FnMut(&[u8])) -> Result<()> {
    visit(skeleton, &ports.outputs, ports.numbers, &mut |value| named(value, each))
}

/// Calls `each` with a value's name; a number is passed as decimal digits.
fn named(value: Key<'_>, each: &mut dyn FnMut(&[u8])) {
    match value {
        Key::Text(text) => each(text),
        Key::Number(number) => each(number.to_string().as_bytes()),
    }
}

/// True if a node takes a value that is called `value`.
pub fn takes(skeleton: &[u8], ports: &Ports, value: &[u8]) -> Result<bool> {
    let mut found = false;
    for inputs in &ports.inputs {
        visit(skeleton, inputs, ports.numbers, &mut |each| found |= each == Key::Text(value))?;
    }
    Ok(found)
}

/// The items of `node`, the last of which is directly before position `ends[node]`.
fn slice<'l, T>(items: &'l [T], ends: &[u32], node: usize) -> &'l [T] {
    let begin = node.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    let end = ends.get(node).copied().unwrap_or(begin);
    items.get(begin as usize..end as usize).unwrap_or_default()
}

/// The node's name in an input as TensorFlow writes it.
fn unqualified(value: Key<'_>) -> Key<'_> {
    let Key::Text(text) = value else { return value };
    let text = text.strip_prefix(b"^").unwrap_or(text);
    Key::Text(text.split(|byte| *byte == b':').next().unwrap_or_default())
}

/// Calls `each` with all values at `fields` of a message, which are texts, or numbers if `numbers`.
pub(crate) fn visit<'f>(message: &'f [u8], fields: &[u32], numbers: bool, each: &mut dyn FnMut(Key<'f>)) -> Result<()> {
    let Some((number, below)) = fields.split_first() else { return Ok(()) };
    let mut fields = Fields::new(message, 0, DEPTH);
    while let Some(field) = fields.next_but(*number)? {
        if field.header.number != *number {
            continue;
        }
        match field.header.wire {
            Wire::Len if !below.is_empty() => visit(field.content, below, numbers, each)?,
            Wire::Len if numbers => unpack(field.content, each),
            Wire::Len => each(Key::Text(field.content)),
            Wire::Varint if numbers => each(Key::Number(field.header.value)),
            _ => {}
        }
    }
    Ok(())
}

/// Calls `each` with the varints in `bytes`, up to the first damaged one.
fn unpack<'f>(mut bytes: &'f [u8], each: &mut dyn FnMut(Key<'f>)) {
    while let Varint::Value(value, len) = varint::read_value(bytes) {
        each(Key::Number(value));
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(message: &[u8], fields: &[u32], numbers: bool) -> Vec<String> {
        let mut found = Vec::new();
        let _ = visit(message, fields, numbers, &mut |value| found.push(format!("{value:?}")));
        found
    }

    #[test]
    fn numbers_are_read_packed_and_one_by_one() {
        let message = [0x0a, 3, 1, 0x80, 1, 0x08, 7];
        assert_eq!(values(&message, &[1], true), ["Number(1)", "Number(128)", "Number(7)"]);
    }

    #[test]
    fn inputs_of_tensorflow_name_the_node_alone() {
        for input in ["^node", "node", "node:1", "node:out:0", "^node:1"] {
            assert_eq!(unqualified(Key::Text(input.as_bytes())), Key::Text(b"node"));
        }
    }
}

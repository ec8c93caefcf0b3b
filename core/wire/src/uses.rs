//! The kinds of the values that a graph stores, derived from the operators that take them.

use std::collections::{HashMap, HashSet};

use crate::error::{Kind as Reason, Result, WireError};
use crate::find::{Findings, Found};
use crate::key::Key;
use crate::links::{holder, text, visit};

/// Most inputs, and most outputs, of an operator that are examined.
const MAX_PORTS: usize = 64;
/// Most operators that take a value and are examined.
const MAX_TAKERS: usize = 4;
/// Most operators in sequence that change the form of one stored value.
const MAX_FORMS: u32 = 16;
/// Most operators that are examined for one value, between the value and the operator that uses it, and around that.
const MAX_LOOKS: u32 = 64;
/// Most examined values in the whole graph, because a model may connect all of its operators with each other.
const MAX_STEPS: u64 = 1 << 26;
/// Means that no operator makes the value.
const NO_MAKER: u32 = u32::MAX;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names say it")]
pub enum Kind {
    Attention,
    Linear,
    Convolution,
    Normalization,
    Embedding,
    Recurrent,
    Quantization,
    Other,
}

/// The way in which an operator uses its inputs.
#[derive(Clone, Debug, Default)]
pub struct Operator {
    /// The kind of layer that the operator is.
    pub kind: Option<Kind>,
    /// The slots of inputs that have another kind.
    pub slots: Vec<(u32, Kind)>,
    /// The slots of the two matrices that it multiplies.
    pub product: Option<(u32, u32)>,
    /// True for a layer that multiplies by a matrix.
    pub layer: bool,
    /// True if it only changes the form of its first input.
    pub passing: bool,
    /// True if it returns parts of its first input.
    pub cutting: bool,
    /// True if it joins its inputs.
    pub joining: bool,
    /// True if it takes constants that control the computation.
    pub setting: bool,
    /// True if it adds or subtracts.
    pub adding: bool,
    /// True if it multiplies or divides element by element.
    pub scaling: bool,
    /// True if it divides.
    pub dividing: bool,
    /// True if it computes the reciprocal of a number or of a root.
    pub inverting: bool,
    /// True if it computes a root or a power.
    pub rooting: bool,
    /// True if it quantizes with scales that it computes.
    pub quantizing: bool,
}

impl Operator {
    fn slot(&self, slot: u32) -> Option<Kind> {
        self.slots.iter().find(|(known, _)| *known == slot).map(|(_, kind)| *kind)
    }

    /// The kind that the operator shares with all its stored inputs.
    fn plain(&self) -> Option<Kind> {
        self.kind.filter(|kind| self.slots.is_empty() && *kind != Kind::Embedding)
    }
}

/// The fields of an operator; each has a number per step down.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The field with the operator's name; the first one counts.
    pub name: Vec<u32>,
    /// The field with the operator's type.
    pub op: Vec<u32>,
    /// The field with the names of the values that the operator takes.
    pub inputs: Vec<u32>,
    /// The field with the names of the values that the operator makes.
    pub outputs: Vec<u32>,
    /// True when names of values are only valid within one graph, and inputs are written as in TensorFlow.
    pub qualified: bool,
    /// True when inputs are the entries of a map, which are taken in the order of their keys, but `x` first.
    pub keyed: bool,
    /// True when results may have the names of inputs, so that operators are distinguished by the values they take.
    pub reassigned: bool,
    /// True when values have numbers instead of names.
    pub numbers: bool,
}

/// The kinds of stored values.
#[derive(Debug, Default)]
pub struct Uses<'f> {
    /// The values that no operator computes, with their kinds as far as known.
    pub values: Vec<(Key<'f>, Kind)>,
    /// The operators without inputs, as their paths and the kinds of their values.
    pub constants: Vec<(&'f str, Kind)>,
}

/// Returns the kinds of the values that no operator computes; settings of operators have the kind `Kind::Other`.
///
/// `operator` describes a type of operators. `named` returns the kind for a name in which numbers are replaced with
/// `0`. Damaged operators are ignored.
pub fn uses<'f>(
    found: &'f Findings,
    fields: &Fields,
    operator: &mut dyn FnMut(&[u8]) -> Result<Operator>,
    named: &mut dyn FnMut(&[u8]) -> Result<Kind>,
) -> Result<Uses<'f>> {
    let graph = Graph::of(found, fields, operator)?;
    Walk::of(&graph, MAX_STEPS, named).uses()
}

/// The numbers of values, by graph and name.
type Numbers<'f> = HashMap<(&'f str, Key<'f>), u32>;

struct Node<'f> {
    name: &'f [u8],
    path: &'f str,
    op: u32,
    /// The ends of its inputs and outputs in the lists of all nodes.
    inputs: u32,
    outputs: u32,
}

struct Value<'f> {
    key: Key<'f>,
    maker: u32,
    /// Its takers, from first to last: each is the node's number times the most ports, plus the slot.
    takers: [u32; MAX_TAKERS],
    taken: usize,
}

#[derive(Default)]
struct Graph<'f> {
    operators: Vec<Operator>,
    unknown: Operator,
    nodes: Vec<Node<'f>>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    values: Vec<Value<'f>>,
}

impl<'f> Graph<'f> {
    fn of(found: &'f Findings, fields: &Fields, operator: &mut dyn FnMut(&[u8]) -> Result<Operator>) -> Result<Self> {
        let mut graph = Self {
            nodes: Vec::with_capacity(found.len()),
            values: Vec::with_capacity(2 * found.len()),
            ..Self::default()
        };
        let mut ops: HashMap<&[u8], u32> = HashMap::new();
        let mut numbers = Numbers::with_capacity(2 * found.len());
        if found.len() >= NO_MAKER as usize / MAX_PORTS {
            return Err(WireError::new(Reason::Limit, "the graph has too many operators"));
        }
        for message in found.iter() {
            let Ok(parts) = Parts::of(&message, fields) else { continue };
            let next = graph.operators.len() as u32;
            let op = *ops.entry(parts.op).or_insert(next);
            if op == next {
                graph.operators.push(operator(parts.op)?);
            }
            let place = if fields.qualified { holder(message.path) } else { "" };
            graph.add(&mut numbers, message.path, place, op, parts);
        }
        Ok(graph)
    }

    /// Adds a node at `path`; the names of its values belong to `place`.
    fn add(&mut self, numbers: &mut Numbers<'f>, path: &'f str, place: &'f str, op: u32, parts: Parts<'f>) {
        let number = self.nodes.len() as u32;
        for (slot, key) in parts.inputs.into_iter().enumerate() {
            let id = self.value(numbers, place, key);
            self.inputs.push(id);
            if let Some(value) = self.values.get_mut(id as usize)
                && let Some(taker) = value.takers.get_mut(value.taken)
            {
                *taker = number * MAX_PORTS as u32 + slot as u32;
                value.taken += 1;
            }
        }
        for key in parts.outputs {
            let id = self.value(numbers, place, key);
            self.outputs.push(id);
            if let Some(value) = self.values.get_mut(id as usize).filter(|value| value.maker == NO_MAKER) {
                value.maker = number;
            }
        }
        let (inputs, outputs) = (self.inputs.len() as u32, self.outputs.len() as u32);
        self.nodes.push(Node { name: parts.name, path, op, inputs, outputs });
    }

    fn value(&mut self, numbers: &mut Numbers<'f>, place: &'f str, key: Key<'f>) -> u32 {
        let next = self.values.len() as u32;
        let id = *numbers.entry((place, key)).or_insert(next);
        if id == next {
            self.values.push(Value { key, maker: NO_MAKER, takers: [0; MAX_TAKERS], taken: 0 });
        }
        id
    }

    fn operator(&self, node: u32) -> &Operator {
        let op = self.nodes.get(node as usize).map_or(NO_MAKER, |node| node.op);
        self.operators.get(op as usize).unwrap_or(&self.unknown)
    }

    fn inputs(&self, node: u32) -> &[u32] {
        self.span(node, &self.inputs, |node| node.inputs)
    }

    fn outputs(&self, node: u32) -> &[u32] {
        self.span(node, &self.outputs, |node| node.outputs)
    }

    fn span<'g>(&self, node: u32, of: &'g [u32], end: impl Fn(&Node<'_>) -> u32) -> &'g [u32] {
        let begin = node.checked_sub(1).and_then(|before| self.nodes.get(before as usize)).map_or(0, &end);
        let end = self.nodes.get(node as usize).map_or(begin, &end);
        of.get(begin as usize..end as usize).unwrap_or_default()
    }

    fn maker(&self, value: u32) -> Option<u32> {
        self.values.get(value as usize).map(|value| value.maker).filter(|maker| *maker != NO_MAKER)
    }

    /// The nodes that take a value, each with the slot.
    fn takers(&self, value: u32) -> impl Iterator<Item = (u32, u32)> {
        let value = self.values.get(value as usize);
        let takers = value.and_then(|value| value.takers.get(..value.taken)).unwrap_or_default();
        takers.iter().map(|taker| (taker / MAX_PORTS as u32, taker % MAX_PORTS as u32))
    }

    /// True for a value with a name; a slot without a name has no value.
    fn is_named(&self, value: u32) -> bool {
        self.values.get(value as usize).is_some_and(|value| value.key != Key::Text(b""))
    }

    /// True for an operator that takes no values.
    fn is_constant(&self, node: u32) -> bool {
        !self.inputs(node).iter().any(|value| self.is_named(*value))
    }

    /// The values that an operator multiplies, adds or passes on.
    fn sides(&self, node: u32) -> Vec<u32> {
        let (operator, inputs) = (self.operator(node), self.inputs(node));
        if operator.passing {
            return inputs.iter().take(1).copied().collect();
        }
        let (first, second) = operator.product.unwrap_or((0, 1));
        [first, second].into_iter().filter_map(|slot| inputs.get(slot as usize).copied()).collect()
    }

    fn makes_quantized(&self, value: u32) -> bool {
        self.maker(value).is_some_and(|maker| self.operator(maker).quantizing)
    }

    /// True if any of the values is a root or a power, as a deviation is.
    fn is_root(&self, values: &[u32]) -> bool {
        values.iter().any(|value| self.maker(*value).is_some_and(|maker| self.operator(maker).rooting))
    }
}

/// The parts of an operator's message.
struct Parts<'f> {
    name: &'f [u8],
    op: &'f [u8],
    inputs: Vec<Key<'f>>,
    outputs: Vec<Key<'f>>,
}

impl<'f> Parts<'f> {
    fn of(found: &Found<'f>, fields: &Fields) -> Result<Self> {
        let message = found.skeleton;
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        if fields.keyed {
            keyed(message, &fields.inputs, &mut inputs)?;
        } else {
            visit(message, &fields.inputs, fields.numbers, &mut |value| inputs.push(value))?;
        }
        visit(message, &fields.outputs, fields.numbers, &mut |value| outputs.push(value))?;
        if fields.numbers && outputs.is_empty() {
            outputs.push(Key::Number(0));
        }
        if fields.qualified {
            inputs = inputs.into_iter().filter_map(unqualified).collect();
        }
        if fields.reassigned {
            let mut seen = HashSet::new();
            inputs.retain(|value| seen.insert(*value));
            outputs.retain(|value| !seen.contains(value));
        }
        inputs.truncate(MAX_PORTS);
        outputs.truncate(MAX_PORTS);
        let mut name = None;
        visit(message, &fields.name, false, &mut |value| {
            if let Key::Text(text) = value {
                name.get_or_insert(text);
            }
        })?;
        Ok(Self { name: name.unwrap_or_default(), op: text(message, &fields.op)?.unwrap_or_default(), inputs, outputs })
    }
}

/// Appends the values in a map's entries in the order of their keys, but `x` first.
fn keyed<'f>(message: &'f [u8], fields: &[u32], values: &mut Vec<Key<'f>>) -> Result<()> {
    let Some((number, below)) = fields.split_first() else { return Ok(()) };
    let mut entries = Vec::new();
    visit(message, &[*number], false, &mut |entry| {
        if let Key::Text(entry) = entry {
            entries.push(entry);
        }
    })?;
    let mut by_key = HashMap::new();
    for entry in entries {
        by_key.insert(text(entry, &[1])?.unwrap_or_default(), entry);
    }
    let mut sorted: Vec<_> = by_key.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| (*key != b"x", *key));
    let (Some((name, steps)), mut arguments) = (below.split_last(), Vec::new()) else { return Ok(()) };
    for (_, entry) in sorted {
        visit(entry, steps, false, &mut |argument| arguments.push(argument))?;
    }
    for argument in arguments {
        if let Key::Text(argument) = argument {
            values.push(Key::Text(text(argument, &[*name])?.unwrap_or_default())); // values of its own have no name
        }
    }
    Ok(())
}

/// The name of the node in an input as TensorFlow writes it; None for an input that is only a dependency.
fn unqualified(value: Key<'_>) -> Option<Key<'_>> {
    match value {
        Key::Text(text) if text.starts_with(b"^") => None,
        Key::Text(text) => text.split(|byte| *byte == b':').next().map(Key::Text),
        number => Some(number),
    }
}

struct Walk<'g, 'f, 'n> {
    graph: &'g Graph<'f>,
    /// How many operators may still be examined for one value.
    room: u32,
    steps: u64,
    /// For each operator, whether it makes values that are stored, as far as known.
    kept: Vec<Option<bool>>,
    /// The operators that make the sides of attention's products or take their results; empty until first needed.
    attending: Vec<bool>,
    /// The kinds by name, in which numbers are replaced with `0`, as far as they were needed.
    said: HashMap<Vec<u8>, Kind>,
    /// The name that was looked up last.
    plain: Vec<u8>,
    /// The node whose name was looked up last, because the stored inputs of a node are processed one after the other.
    last_node: Option<(u32, Kind)>,
    named: &'n mut dyn FnMut(&[u8]) -> Result<Kind>,
}

impl<'g, 'f, 'n> Walk<'g, 'f, 'n> {
    fn of(graph: &'g Graph<'f>, steps: u64, named: &'n mut dyn FnMut(&[u8]) -> Result<Kind>) -> Self {
        Self {
            graph,
            room: 0,
            steps,
            kept: vec![None; graph.nodes.len()],
            attending: Vec::new(),
            said: HashMap::new(),
            plain: Vec::new(),
            last_node: None,
            named,
        }
    }

    fn uses(mut self) -> Result<Uses<'f>> {
        let mut found = Uses::default();
        let mut kinds = vec![None; self.graph.values.len()];
        for (id, value) in self.graph.values.iter().enumerate() {
            let id = id as u32;
            let stored = value.maker == NO_MAKER || self.graph.is_constant(value.maker);
            let first = self.graph.takers(id).next().filter(|_| stored && self.graph.is_named(id));
            let Some((taker, _)) = first else { continue };
            self.room = MAX_LOOKS;
            let kind = match self.graph.operator(taker).plain().or_else(|| self.taken(id)) {
                Some(Kind::Linear) => Some(self.product(id)?),
                other => other,
            };
            let Some(kind) = kind else { continue };
            found.values.push((value.key, kind));
            if let Some(place) = kinds.get_mut(id as usize) {
                *place = Some(kind);
            }
        }
        for (number, node) in self.graph.nodes.iter().enumerate() {
            let number = number as u32;
            let value = self.graph.outputs(number).first().filter(|_| self.graph.inputs(number).is_empty());
            if let Some(kind) = value.and_then(|value| kinds.get(*value as usize).copied().flatten()) {
                found.constants.push((node.path, kind));
            }
        }
        Ok(found)
    }

    /// Counts one more examined value; returns false when there were too many.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    /// Counts one more examined operator; returns false when no more may be examined.
    fn look(&mut self) -> bool {
        self.room = self.room.saturating_sub(1);
        self.step() && self.room > 0
    }

    /// The kind of a layer that is a product: names, and other products nearby, distinguish three kinds.
    fn product(&mut self, value: u32) -> Result<Kind> {
        let mut kind = self.kind_of_value(value)?;
        for (taker, _) in self.graph.takers(value) {
            let said = if self.is_attending(taker) { Kind::Attention } else { self.kind_of_node(taker)? };
            if said == Kind::Recurrent || (said == Kind::Attention && kind != Kind::Recurrent) {
                kind = said;
            }
        }
        Ok(if matches!(kind, Kind::Recurrent | Kind::Attention) { kind } else { Kind::Linear })
    }

    fn kind_of_value(&mut self, value: u32) -> Result<Kind> {
        let Some(value) = self.graph.values.get(value as usize) else { return Ok(Kind::Other) };
        match value.key {
            Key::Text(name) => self.kind_named(name),
            Key::Number(number) => self.kind_named(number.to_string().as_bytes()),
        }
    }

    fn kind_of_node(&mut self, number: u32) -> Result<Kind> {
        let Some(node) = self.graph.nodes.get(number as usize) else { return Ok(Kind::Other) };
        if let Some((last, kind)) = self.last_node
            && last == number
        {
            return Ok(kind);
        }
        let kind = self.kind_named(node.name)?;
        self.last_node = Some((number, kind));
        Ok(kind)
    }

    /// The kind for a name; a layer and its stored values often share the name.
    fn kind_named(&mut self, name: &[u8]) -> Result<Kind> {
        let layer = [&b"weight"[..], b"bias"].iter().find_map(|last| name.strip_suffix(*last));
        let name = match layer {
            Some([]) => b"",
            Some([layer @ .., b'.']) => layer,
            _ => name,
        };
        self.plain.clear();
        let mut in_number = false;
        for byte in name {
            if !byte.is_ascii_digit() {
                self.plain.push(*byte);
            } else if !in_number {
                self.plain.push(b'0');
            }
            in_number = byte.is_ascii_digit();
        }
        if let Some(kind) = self.said.get(self.plain.as_slice()) {
            return Ok(*kind);
        }
        let kind = (self.named)(&self.plain)?;
        self.said.insert(self.plain.clone(), kind);
        Ok(kind)
    }

    /// The kind according to the operators that take a value.
    fn taken(&mut self, value: u32) -> Option<Kind> {
        let graph = self.graph;
        graph.takers(value).find_map(|(node, slot)| if self.look() { self.used(node, slot) } else { None })
    }

    /// The kind according to the use that an operator makes of the input in `slot`.
    fn used(&mut self, node: u32, slot: u32) -> Option<Kind> {
        let graph = self.graph;
        let (operator, inputs, result) = (graph.operator(node), graph.inputs(node), graph.outputs(node).first());
        if let Some(kind) = operator.slot(slot) {
            return Some(kind);
        }
        if let Some(kind) = operator.kind {
            return Some(kind).filter(|kind| *kind != Kind::Embedding || slot == 0);
        }
        if operator.setting {
            return Some(Kind::Other);
        }
        if operator.dividing && slot == 0 && result.is_some() {
            // This is a bias as integers, whose scale is the second input.
            return result.and_then(|result| self.taken(*result));
        }
        if operator.adding || operator.scaling {
            if others(inputs, slot).any(|each| graph.makes_quantized(each)) {
                return Some(Kind::Quantization);
            }
            if self.is_affine(node, slot) {
                return Some(Kind::Normalization);
            }
            return others(inputs, slot).find_map(|each| self.made(each, operator.adding));
        }
        let passes = (slot == 0 && operator.passing) || (operator.joining && self.are_kept(inputs));
        result.filter(|_| passes).and_then(|result| self.taken(*result))
    }

    /// The kind of the operator whose result `value` is scaled or shifted.
    fn made(&mut self, value: u32, adding: bool) -> Option<Kind> {
        let graph = self.graph;
        let looks = self.look();
        let node = graph.maker(value).filter(|_| looks)?;
        let (operator, inputs) = (graph.operator(node), graph.inputs(node));
        if operator.inverting || (operator.dividing && graph.is_root(inputs.get(1..).unwrap_or_default())) {
            return Some(Kind::Normalization);
        }
        if operator.kind.is_some() {
            // After a complete normalization, the stored numbers belong to an activation.
            return operator.kind.filter(|kind| adding && *kind != Kind::Normalization);
        }
        if (adding && operator.cutting) || !(operator.passing || operator.scaling) {
            return None; // biases are added to whole results
        }
        let sides = inputs.get(..2).unwrap_or(inputs);
        for (each, other) in sides.iter().zip(sides.iter().rev()) {
            let kind = self.made(*each, adding);
            let counts = |walk: &mut Self| operator.passing || walk.is_factor(*other);
            if kind == Some(Kind::Normalization) || (kind.is_some() && counts(self)) {
                return kind;
            }
        }
        None
    }

    /// True for an operator that scales or shifts by stored numbers, like a normalization without its statistics.
    /// `slot` is the slot of the stored value.
    fn is_affine(&mut self, node: u32, slot: u32) -> bool {
        let graph = self.graph;
        if graph.operator(node).adding {
            return others(graph.inputs(node), slot).any(|each| self.scales_layer(graph.maker(each)));
        }
        let Some(result) = graph.outputs(node).first() else { return false };
        self.scales_layer(Some(node))
            && graph.takers(*result).any(|(taker, slot)| {
                graph.operator(taker).adding && others(graph.inputs(taker), slot).all(|each| self.is_kept(each))
            })
    }

    /// True for a product of stored numbers and the result of convolutions, or a sum of such results.
    fn scales_layer(&mut self, node: Option<u32>) -> bool {
        let graph = self.graph;
        let Some(node) = node.filter(|node| graph.operator(*node).scaling && !graph.operator(*node).dividing) else {
            return false;
        };
        let inputs = graph.inputs(node);
        let computed: Vec<u32> = inputs.iter().copied().filter(|each| !self.is_kept(*each)).collect();
        let [one] = computed.as_slice() else { return false };
        graph.maker(*one).filter(|_| inputs.len() > 1).is_some_and(|maker| {
            let operator = graph.operator(maker);
            operator.adding || operator.kind == Some(Kind::Convolution)
        })
    }

    /// True for stored numbers, and for numbers that scale integers back.
    fn is_factor(&mut self, value: u32) -> bool {
        let graph = self.graph;
        match graph.maker(value).filter(|maker| graph.operator(*maker).scaling) {
            Some(maker) => graph.inputs(maker).iter().any(|each| graph.makes_quantized(*each)),
            None => self.is_kept(value),
        }
    }

    fn is_kept(&mut self, value: u32) -> bool {
        self.comes_from_storage(value, MAX_FORMS)
    }

    fn are_kept(&mut self, values: &[u32]) -> bool {
        values.iter().all(|value| self.is_kept(*value))
    }

    /// True for a stored value, also if operators have only changed its form or joined such values.
    fn comes_from_storage(&mut self, value: u32, forms: u32) -> bool {
        let graph = self.graph;
        let Some(maker) = graph.maker(value).filter(|maker| !graph.is_constant(*maker)) else { return self.step() };
        let known = self.kept.get(maker as usize).copied().flatten();
        if known.is_some() || forms == 0 || !self.step() {
            return known.unwrap_or_default();
        }
        let (operator, inputs) = (graph.operator(maker), graph.inputs(maker));
        let parts = match (operator.joining, operator.passing) {
            (true, _) => inputs,
            (_, true) => inputs.get(..1).unwrap_or_default(),
            _ => &[],
        };
        let kept = !parts.is_empty() && parts.iter().all(|each| self.comes_from_storage(*each, forms - 1));
        if let Some(place) = self.kept.get_mut(maker as usize) {
            *place = Some(kept);
        }
        kept
    }

    fn is_attending(&mut self, node: u32) -> bool {
        if self.attending.is_empty() {
            let mut found = vec![false; self.graph.nodes.len()];
            for number in 0..found.len() as u32 {
                if self.graph.operator(number).product.is_none() {
                    continue;
                }
                let sides = self.graph.sides(number);
                if sides.len() > 1 && !sides.iter().any(|side| self.is_kept(*side)) {
                    self.mark(sides, &mut found, false);
                    self.mark(self.graph.outputs(number).iter().take(1).copied().collect(), &mut found, true);
                }
            }
            self.attending = found;
        }
        self.attending.get(node as usize).copied().unwrap_or_default()
    }

    /// Marks the operators between `values` and the next layer, and this layer.
    fn mark(&mut self, values: Vec<u32>, found: &mut [bool], ahead: bool) {
        let graph = self.graph;
        let mut ways: Vec<(u32, bool)> = values.into_iter().map(|value| (value, false)).collect();
        while let Some((value, past)) = ways.pop() {
            let nodes: Vec<u32> = if ahead {
                graph.takers(value).map(|(node, _)| node).collect()
            } else {
                graph.maker(value).into_iter().collect()
            };
            for node in nodes {
                let (operator, inputs) = (graph.operator(node), graph.sides(node));
                let scales = |walk: &mut Self| inputs.iter().copied().filter(|each| walk.is_factor(*each)).collect();
                // The numbers that scale integers back are computed.
                let mut kept: Vec<u32> = if operator.scaling { scales(self) } else { Vec::new() };
                if kept.is_empty() {
                    kept = inputs.iter().copied().filter(|each| self.is_kept(*each)).collect();
                }
                let takes = operator.layer || operator.adding || operator.scaling;
                let Some(place) = found.get_mut(node as usize).filter(|place| !**place) else { continue };
                if !(operator.passing || (takes && !kept.is_empty())) || (past && operator.layer) {
                    continue;
                }
                *place = true;
                if ahead {
                    let past = past || operator.layer;
                    ways.extend(graph.outputs(node).iter().take(1).map(|each| (*each, past)));
                    self.mark(kept, found, false);
                    continue;
                }
                let computed: Vec<u32> = inputs.iter().copied().filter(|each| !kept.contains(each)).collect();
                let next = if operator.layer || computed.is_empty() { kept } else { computed };
                ways.extend(next.into_iter().map(|each| (each, false)));
            }
        }
    }
}

/// All inputs except the one in `slot`.
fn others(inputs: &[u32], slot: u32) -> impl Iterator<Item = u32> {
    inputs.iter().enumerate().filter(move |(at, _)| *at != slot as usize).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a graph with many operators that scale a convolution's result by the same stored numbers. As many
    /// operators add all these results to other stored numbers. Returns how many of the stored numbers get a kind
    /// within `steps`.
    fn known(operators: u64, steps: u64) -> usize {
        let mut graph = Graph::default();
        graph.operators.push(Operator { kind: Some(Kind::Convolution), ..Operator::default() });
        graph.operators.push(Operator { scaling: true, ..Operator::default() });
        graph.operators.push(Operator { adding: true, ..Operator::default() });
        let parts = |inputs, output| Parts { name: b"", op: b"", inputs, outputs: vec![Key::Number(output)] };
        let mut numbers = Numbers::new();
        graph.add(&mut numbers, "", "", 0, parts(vec![Key::Text(b"x")], 0));
        for number in 1..operators {
            graph.add(&mut numbers, "", "", 1, parts(vec![Key::Number(0), Key::Text(b"scale")], number));
        }
        for number in 1..operators {
            let inputs = [Key::Number(1000 + number)].into_iter().chain((1..operators).map(Key::Number));
            graph.add(&mut numbers, "", "", 2, parts(inputs.collect(), 2000 + number));
        }
        Walk::of(&graph, steps, &mut |_| Ok(Kind::Other)).uses().map_or(0, |found| found.values.len())
    }

    #[test]
    fn looks_around_values_are_limited_in_all() {
        assert_eq!(known(40, MAX_STEPS), 40);
        assert!(known(40, 60) < 40);
    }
}

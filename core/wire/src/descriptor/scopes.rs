//! The names that a set declares: a tree of packages, messages and their members.

use std::collections::HashMap;

use super::{Bounds, invalid, shown, too_many};
use crate::error::{Kind, Result, WireError};

/// Longest full name in bytes; `MAX_DEPTH` is the most parts of a full name.
const MAX_NAME: usize = 1024;
pub(super) const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Package,
    Message(u32),
    Enum(u32),
    /// A field, a oneof, an enum's value, an extension or a service.
    Other,
}

struct Node<'a> {
    parent: u32,
    name: &'a str,
    symbol: Symbol,
}

/// The tree of names; node 0 is the root.
pub(super) struct Scopes<'a> {
    nodes: Vec<Node<'a>>,
    children: HashMap<(u32, &'a str), u32>,
    bounds: Bounds,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let root = Node { parent: 0, name: "", symbol: Symbol::Package };
        Self { nodes: vec![root], children: HashMap::new(), bounds: *bounds }
    }

    /// The scope of a package, created if missing.
    pub(super) fn package(&mut self, name: &'a str) -> Result<u32> {
        let mut at = 0;
        for part in name.split('.').filter(|_| !name.is_empty()) {
            at = match self.children.get(&(at, part)) {
                Some(&found) if self.symbol(found) == Symbol::Package => found,
                _ => self.define(at, part, Symbol::Package)?,
            };
        }
        Ok(at)
    }

    /// Adds `name` to `scope`; fails if the name is taken or is not an identifier, or if there are too many names.
    pub(super) fn define(&mut self, scope: u32, name: &'a str, symbol: Symbol) -> Result<u32> {
        if !is_name(name) {
            return Err(invalid(format!("{} is not a valid name", shown(name))));
        }
        let id = u32::try_from(self.nodes.len()).map_err(|_| too_many(&self.bounds))?;
        if self.nodes.len() > self.bounds.parts {
            return Err(too_many(&self.bounds));
        }
        self.nodes.push(Node { parent: scope, name, symbol });
        if self.children.insert((scope, name), id).is_some() {
            return Err(invalid(format!("{} is declared twice", shown(&self.full_name(id)?))));
        }
        Ok(id)
    }

    /// The full name of a node, with its parts joined by dots.
    pub(super) fn full_name(&self, id: u32) -> Result<String> {
        let (mut parts, mut length, mut at) = (Vec::new(), 0, id);
        while let Some(node) = self.nodes.get(at as usize).filter(|_| at > 0) {
            length += node.name.len() + 1;
            parts.push(node.name);
            at = node.parent;
        }
        if length > MAX_NAME + 1 || parts.len() > MAX_DEPTH {
            let text = format!("a full name has more than {MAX_NAME} bytes, or more than {MAX_DEPTH} parts");
            return Err(WireError::new(Kind::Limit, text));
        }
        parts.reverse();
        Ok(parts.join("."))
    }

    /// The symbol for `name` in `scope`. A name with a leading dot is absolute; any other name is searched in `scope`
    /// and in the scopes around it.
    pub(super) fn resolve(&self, scope: u32, name: &str) -> Option<Symbol> {
        if let Some(full) = name.strip_prefix('.') {
            return self.walk(0, full);
        }
        let mut at = scope;
        loop {
            let found = self.walk(at, name);
            if found.is_some() || at == 0 {
                return found;
            }
            at = self.nodes.get(at as usize)?.parent;
        }
    }

    fn walk(&self, from: u32, name: &str) -> Option<Symbol> {
        let mut at = from;
        for part in name.split('.') {
            at = *self.children.get(&(at, part))?;
        }
        Some(self.symbol(at))
    }

    fn symbol(&self, id: u32) -> Symbol {
        self.nodes.get(id as usize).map_or(Symbol::Other, |node| node.symbol)
    }
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

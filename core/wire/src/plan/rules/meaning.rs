//! The meaning of rules for messages of one type: names are resolved to numbers once, then fields are matched one by
//! one.

use super::{Action, Rule};
use crate::error::{Kind, Result, WireError};
use crate::key::{Key, is_text};
use crate::path::{Name, Segment, Select};
use crate::resolve::map_key;
use crate::schema::{Field, FieldKind, Schema, TypeId};

/// The rules of a plan, resolved for the type of the root.
#[derive(Debug, Default)]
pub(in crate::plan) struct Meaning {
    rules: Vec<Resolved>,
}

#[derive(Debug)]
struct Resolved {
    steps: Vec<Step>,
    /// True for single elements of a repeated field, false for all its elements together.
    elements: bool,
    action: Action,
}

#[derive(Debug)]
struct Step {
    number: u32,
    which: Which,
}

/// The elements to which a step leads.
#[derive(Debug)]
enum Which {
    All,
    /// The positions from the first to the second, which is excluded.
    Places(u64, u64),
    Text(Vec<u8>),
    Number(u64),
}

/// The rules that continue from a message, as a set, and the number of steps that led to the message.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::plan) struct Active {
    rules: u64,
    step: usize,
}

impl Active {
    /// True if no rule continues.
    pub(in crate::plan) fn is_empty(self) -> bool {
        self.rules == 0
    }
}

/// What the rules want for a part.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct Wish {
    /// The size in bytes from which the part becomes a chunk.
    pub(in crate::plan) least: u64,
    /// True to take nothing out of the part.
    pub(in crate::plan) whole: bool,
    /// Most elements of a piece; None without a rule about this.
    pub(in crate::plan) every: Option<u64>,
    /// The rules that continue further down.
    pub(in crate::plan) below: Active,
}

impl Meaning {
    /// Resolves `rules` for a root of type `root`; a `NotFound` or `Unsupported` error names the rule and the place.
    pub(in crate::plan) fn new(rules: &[Rule], schema: &Schema, root: Option<TypeId>) -> Result<Self> {
        let rules = rules.iter().map(|rule| Resolved::new(rule, schema, root));
        Ok(Self { rules: rules.collect::<Result<_>>()? })
    }

    /// The rules at the root.
    pub(in crate::plan) fn root(&self) -> Active {
        let rules = u32::try_from(self.rules.len()).ok().and_then(|count| u64::MAX.checked_shr(64 - count));
        Active { rules: rules.unwrap_or(0), step: 0 }
    }

    /// True if a rule of `active` selects entries of map `number` by key.
    pub(in crate::plan) fn by_key(&self, active: Active, number: u32) -> bool {
        self.steps(active)
            .any(|(_, _, step)| step.number == number && matches!(step.which, Which::Text(_) | Which::Number(_)))
    }

    /// What the rules want for an element of field `number` at position `at`, or in a map, for the entry with `key`.
    pub(in crate::plan) fn element(
        &self,
        active: Active,
        number: u32,
        at: u64,
        key: Option<Key<'_>>,
        least: u64,
    ) -> Wish {
        self.wish(active, number, least, |rule, last, step| {
            (!last || rule.elements || rule.action == Action::Whole)
                && match &step.which {
                    Which::All => true,
                    Which::Places(from, to) => (*from..*to).contains(&at),
                    Which::Text(text) => key == Some(Key::Text(text)),
                    Which::Number(value) => key == Some(Key::Number(*value)),
                }
        })
    }

    /// What the rules want for all elements of field `number` together.
    pub(in crate::plan) fn run(&self, active: Active, number: u32, least: u64) -> Wish {
        self.wish(active, number, least, |rule, last, _| last && !rule.elements)
    }

    fn wish(&self, active: Active, number: u32, least: u64, matches: impl Fn(&Resolved, bool, &Step) -> bool) -> Wish {
        let below = Active { rules: 0, step: active.step + 1 };
        let mut wish = Wish { least, whole: false, every: None, below };
        for (bit, rule, step) in self.steps(active) {
            let last = rule.steps.len() == active.step + 1;
            if step.number != number || !matches(rule, last, step) {
                continue;
            }
            match rule.action {
                _ if !last => wish.below.rules |= bit,
                Action::AtLeast(least) => wish.least = least,
                Action::Never => wish.least = u64::MAX,
                Action::Whole => wish.whole = true,
                Action::Every(count) => wish.every = Some(count),
            }
        }
        wish
    }

    fn steps(&self, active: Active) -> impl Iterator<Item = (u64, &Resolved, &Step)> {
        let mut left = active.rules;
        let bits = std::iter::from_fn(move || {
            let at = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(at)
        });
        bits.filter_map(move |at| {
            let rule = self.rules.get(at as usize)?;
            Some((1 << at, rule, rule.steps.get(active.step)?))
        })
    }
}

impl Resolved {
    fn new(rule: &Rule, schema: &Schema, root: Option<TypeId>) -> Result<Self> {
        let mut type_id = root;
        let mut steps = Vec::new();
        let mut text = String::new();
        let mut elements = false;
        let segments = &rule.path.segments;
        let refused = |text: &str, kind: Kind, what: &str| {
            let place = text.chars().count().max(1);
            WireError::new(kind, format!("{what}, at character {place}")).on(format!("rule {rule}"))
        };
        for (at, segment) in segments.iter().enumerate() {
            text.push_str(&format!("{}{segment}", if at > 0 { "." } else { "" }));
            let field = named(schema, type_id, &segment.name).map_err(|what| refused(&text, Kind::NotFound, &what))?;
            let which = which(schema, field, segment).map_err(|what| refused(&text, Kind::Unsupported, &what))?;
            steps.push(Step { number: field.number, which });
            elements = segment.select.is_some() || !field.repeated;
            if at + 1 == segments.len() {
                fits(schema, field, segment, rule.action).map_err(|what| refused(&text, Kind::Unsupported, &what))?;
            }
            let message = if schema.is_map(field) { schema.field(Some(field.target), 2) } else { Some(field) };
            type_id = message.filter(|field| field.kind.is_message()).map(|field| field.target);
        }
        Ok(Self { steps, elements, action: rule.action })
    }
}

fn named<'s>(schema: &'s Schema, type_id: Option<TypeId>, name: &Name) -> std::result::Result<&'s Field, String> {
    let Some(message) = type_id.and_then(|id| schema.message(id)) else {
        return Err(format!("{name} cannot be looked up, because the type of its message is unknown"));
    };
    let field = match name {
        Name::Text(name) => message.field_named(name),
        Name::Number(number) => message.field(*number),
    };
    field.ok_or_else(|| format!("{} has no field {name}", message.name))
}

/// The elements of `field` that `segment` selects.
fn which(schema: &Schema, field: &Field, segment: &Segment) -> std::result::Result<Which, String> {
    let name = &field.name;
    match &segment.select {
        None | Some(Select::All) if segment.select.is_none() || field.repeated => Ok(Which::All),
        _ if !field.repeated => Err(format!("{name} is not repeated: it has no elements to select")),
        Some(Select::Where(..)) => {
            Err(format!("{name} has a condition, which rules do not support: select elements by position or key"))
        }
        Some(select) if schema.is_map(field) => {
            let kind = schema.field(Some(field.target), 1).map_or(FieldKind::String, |key| key.kind);
            match map_key(kind, select) {
                Ok(Key::Text(text)) => Ok(Which::Text(text.to_vec())),
                Ok(Key::Number(number)) => Ok(Which::Number(number)),
                Err(error) => Err(error.message().to_owned()),
            }
        }
        Some(Select::Integer(at)) => match u64::try_from(*at) {
            Ok(at) => Ok(Which::Places(at, at.saturating_add(1))),
            Err(_) => Err(format!("the positions of elements in {name} must be 0 or more")),
        },
        Some(Select::Slice(from, to)) => Ok(Which::Places(from.unwrap_or(0), to.unwrap_or(u64::MAX))),
        _ => Err(format!("{name} is not a map: its elements have positions, not keys")),
    }
}

/// Fails where no chunk is possible, so that no rule is without effect.
fn fits(schema: &Schema, field: &Field, segment: &Segment, action: Action) -> std::result::Result<(), String> {
    let name = &field.name;
    let value = if schema.is_map(field) { schema.field(Some(field.target), 2) } else { Some(field) };
    let message = value.is_some_and(|value| value.kind == FieldKind::Message);
    match action {
        Action::Whole if !field.kind.is_message() => {
            Err(format!("the action whole is only for messages, but {name} is not one"))
        }
        Action::Every(_) if !field.repeated || segment.select.is_some() => {
            Err(format!("the action every is only for whole repeated fields: {name} is not repeated, or has brackets"))
        }
        Action::Every(_) if !field.kind.is_message() && !is_text(field.kind) => {
            Err(format!("{name} holds numbers, which the action every cannot split: they are only split by size"))
        }
        Action::AtLeast(_) if field.repeated && segment.select.is_some() && !message => {
            Err(format!("single elements of {name} cannot become chunks: leave out the brackets"))
        }
        Action::AtLeast(_) if !field.repeated && !message && !is_text(field.kind) => {
            Err(format!("{name} cannot become a chunk: only messages, text and bytes can"))
        }
        _ => Ok(()),
    }
}

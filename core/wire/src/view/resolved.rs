//! A mask resolved for one message type: the picks by field, and the elements that each stretch keeps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::document::{Document, Message};
use crate::error::{Kind, Result, WireError};
use crate::mask::{Mask, Pick};
use crate::path::Select;
use crate::schema::Field;

/// The picks of a mask, by field number.
pub(super) type Resolved<'a> = BTreeMap<u32, Group<'a>>;

/// The picks of one field.
pub(super) struct Group<'a> {
    pub(super) field: Option<&'a Field>,
    /// The mask of a singular field.
    pub(super) singular: Option<Rc<Mask>>,
    /// The elements that are selected by key or by the value of a field.
    pub(super) keyed: Vec<(Select, Rc<Mask>)>,
    /// The elements that are selected by position, in ordered stretches without overlap.
    pub(super) stretches: Vec<Stretch>,
    /// True if a pick only selects some of the elements.
    pub(super) in_part: bool,
}

/// Elements with the same mask.
pub(super) struct Stretch {
    pub(super) places: Range<u64>,
    pub(super) mask: Rc<Mask>,
}

/// A pick by position, and the mask of each element.
type Placed = (Range<u64>, Rc<Mask>);

/// The positions that a pick selects; None for a pick by key or condition.
fn places(pick: &Pick, is_map: bool) -> Option<Range<u64>> {
    match pick.select {
        None | Some(Select::All) => Some(0..u64::MAX),
        Some(Select::Slice(from, to)) => Some(from.unwrap_or(0)..to.unwrap_or(u64::MAX)),
        Some(Select::Integer(at)) if !is_map => Some(u64::try_from(at).map_or(0..0, |at| at..at.saturating_add(1))),
        _ => None,
    }
}

/// Resolves `mask` for the type of `message`.
pub(super) fn resolve<'a>(doc: &Document<'a>, message: &Message, mask: &Mask) -> Result<Resolved<'a>> {
    let mut resolved: BTreeMap<u32, (Group<'a>, Vec<Placed>)> = BTreeMap::new();
    for (pick, mask) in &mask.picks {
        doc.spend(1)?;
        let (number, field) = doc.field_of(message, &pick.name).map_err(|error| error.on(pick.name.to_string()))?;
        let empty =
            || (Group { field, singular: None, keyed: Vec::new(), stretches: Vec::new(), in_part: false }, Vec::new());
        let (group, ranges) = resolved.entry(number).or_insert_with(empty);
        if let Some(field) = field.filter(|field| !field.repeated) {
            if let Some(select) = &pick.select {
                let text = format!("{} is not repeated: there is nothing to pick with [{select}]", field.name);
                return Err(WireError::new(Kind::NotFound, text));
            }
            let masks: Vec<_> = group.singular.iter().chain([mask]).map(Rc::clone).collect();
            group.singular = Some(Mask::union(&masks, &mut || doc.spend(1))?);
            continue;
        }
        match (places(pick, field.is_some_and(|field| doc.schema.is_map(field))), &pick.select) {
            (Some(places), _) => {
                group.in_part |= places != (0..u64::MAX);
                ranges.push((places, Rc::clone(mask)));
            }
            (None, Some(select)) => group.keyed.push((select.clone(), Rc::clone(mask))),
            (None, None) => {}
        }
    }
    let finished = resolved.into_iter().map(|(number, (mut group, ranges))| {
        group.stretches = stretches(doc, &ranges)?;
        Ok((number, group))
    });
    finished.collect()
}

/// Splits `ranges`, which may overlap, into stretches without overlap.
fn stretches(doc: &Document<'_>, ranges: &[Placed]) -> Result<Vec<Stretch>> {
    let mut edges: Vec<u64> = ranges.iter().flat_map(|(places, _)| [places.start, places.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut found: Vec<Stretch> = Vec::new();
    for (start, end) in edges.iter().zip(edges.iter().skip(1)) {
        doc.spend(ranges.len() as u64)?;
        let over = ranges.iter().filter(|(places, _)| places.start <= *start && *end <= places.end);
        let masks: Vec<Rc<Mask>> = over.map(|(_, mask)| Rc::clone(mask)).collect();
        if masks.is_empty() {
            continue;
        }
        let mask = Mask::union(&masks, &mut || doc.spend(1))?;
        match found.last_mut() {
            Some(last) if last.places.end == *start && last.mask == mask => last.places.end = *end,
            _ => found.push(Stretch { places: *start..*end, mask }),
        }
    }
    Ok(found)
}

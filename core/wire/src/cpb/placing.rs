//! The places of merged fields: each field is placed according to its number. So a message that was split in the order
//! of its field numbers is restored byte for byte.

use std::collections::HashMap;

use crate::schema::{MISFIT, Message};

/// The place of an added field, and its rank among the fields at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    /// The number of base fields before it.
    after: usize,
    number: u32,
}

/// The order of the fields `numbers` of a message of type `known`, as positions in `numbers`. The first `base` fields
/// stay in order. Each added field goes after the last base field with its number, or else before the first base field
/// with a higher number.
///
/// Returns None, so that all fields stay in order, if members of one oneof exclude each other: another order could then
/// change the meaning. Unknown fields may belong to a oneof too, so they are placed last.
pub(super) fn arranged(numbers: &[u32], base: usize, known: &Message) -> Option<Vec<usize>> {
    let (first, added) = numbers.split_at_checked(base)?;
    if added.is_empty() {
        return None;
    }
    let mut slots: HashMap<u32, Slot> = HashMap::new();
    for &number in added {
        let slot = if known.field(number).is_some() {
            Slot { after: usize::MAX, number }
        } else {
            Slot { after: first.len(), number: u32::MAX }
        };
        slots.insert(number, slot);
    }
    if !is_free(first.iter().chain(added), known) {
        return None;
    }
    let (mut highest, mut rises) = (0, Vec::new());
    for (at, &number) in first.iter().enumerate() {
        let bare = number & !MISFIT;
        if bare > highest {
            highest = bare;
            rises.push((bare, at));
        }
        if let Some(slot) = slots.get_mut(&number).filter(|slot| slot.number == number) {
            slot.after = at + 1;
        }
    }
    for slot in slots.values_mut().filter(|slot| slot.after == usize::MAX) {
        let above = rises.partition_point(|(number, _)| *number <= slot.number);
        slot.after = rises.get(above).map_or(first.len(), |(_, at)| *at);
    }
    let mut sorted: Vec<(Slot, usize)> =
        added.iter().zip(base..).filter_map(|(number, at)| Some((*slots.get(number)?, at))).collect();
    sorted.sort_unstable();
    let mut order = Vec::with_capacity(numbers.len());
    let mut next = 0;
    for (slot, at) in sorted {
        order.extend(next..slot.after);
        next = next.max(slot.after);
        order.push(at);
    }
    order.extend(next..base);
    Some(order)
}

/// True unless `numbers` contains two members of one oneof.
fn is_free<'a>(numbers: impl Iterator<Item = &'a u32>, known: &Message) -> bool {
    let mut members: HashMap<u32, u32> = HashMap::new();
    let mut last = 0;
    for &number in numbers {
        if number == last {
            continue;
        }
        last = number;
        let oneof = known.field(number).map_or(0, |field| field.oneof);
        if oneof > 0 && *members.entry(oneof).or_insert(number) != number {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Field, FieldKind};

    /// A type with the fields 1 to 9; the fields 7 and 8 are members of a oneof.
    fn known() -> Message {
        let field = |number| {
            let oneof = u32::from(number == 7 || number == 8);
            Field { number, name: format!("f{number}"), kind: FieldKind::Bytes, repeated: oneof == 0, oneof, target: 0 }
        };
        Message::new("t".to_owned(), false, (1..10).map(field).collect())
    }

    /// The field numbers in the order that `arranged` returns.
    fn order(base: &[u32], added: &[u32]) -> Option<Vec<u32>> {
        let numbers: Vec<u32> = base.iter().chain(added).copied().collect();
        let order = arranged(&numbers, base.len(), &known())?;
        Some(order.into_iter().map(|at| numbers[at]).collect())
    }

    #[test]
    fn added_fields_go_where_their_number_belongs() {
        assert_eq!(order(&[1, 3, 9], &[5, 5, 2]).unwrap(), [1, 2, 3, 5, 5, 9]);
        assert_eq!(order(&[], &[5, 2, 5]).unwrap(), [2, 5, 5]);
        assert_eq!(order(&[5, 1], &[5, 2]).unwrap(), [2, 5, 5, 1]);
        assert_eq!(order(&[1, 9, 300], &[5]).unwrap(), [1, 5, 9, 300]);
        assert_eq!(order(&[2, 4], &[1, 3, 6]).unwrap(), [1, 2, 3, 4, 6]);
    }

    #[test]
    fn a_field_of_another_wire_type_counts_by_its_number() {
        assert_eq!(order(&[1, 3 | MISFIT, 5], &[4]).unwrap(), [1, 3 | MISFIT, 4, 5]);
    }

    #[test]
    fn elements_keep_their_order() {
        assert_eq!(arranged(&[5, 5, 9, 5, 5], 3, &known()).unwrap(), [0, 1, 3, 4, 2]);
    }

    #[test]
    fn unknown_fields_are_placed_last() {
        assert_eq!(order(&[1, 400], &[300, 9, 200]).unwrap(), [1, 9, 400, 300, 200]);
    }

    #[test]
    fn members_of_a_oneof_keep_everything_in_order() {
        assert_eq!(order(&[8], &[7, 1]), None);
        assert_eq!(order(&[8], &[8, 1]).unwrap(), [1, 8, 8]);
    }
}

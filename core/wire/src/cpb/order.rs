//! The order in which chunks are merged, which extends TensorFlow's order to a total order.

use std::cmp::Ordering;

use crate::error::{Kind, Result, WireError};
use crate::metadata::{ChunkedField, MapKey, Tag};

/// Sorts `fields` into merge order: additions to the message itself come first, parents come before children, and
/// elements are sorted by position. Fields at the same place are sorted by chunk number, and else keep their order.
pub(super) fn sorted(fields: &[ChunkedField]) -> Result<Vec<&ChunkedField>> {
    let mut sorted: Vec<&ChunkedField> = fields.iter().collect();
    sorted.sort_by(|a, b| {
        let chunks = a.message.chunk.unwrap_or(0).cmp(&b.message.chunk.unwrap_or(0));
        compare(&a.tags, &b.tags).then(chunks)
    });
    // Tags of different kinds at one place contradict each other. In a total order, two such fields are neighbours.
    for pair in sorted.windows(2) {
        let [a, b] = pair else { continue };
        let differing = a.tags.iter().zip(&b.tags).find(|(a, b)| a != b);
        if let Some((a, b)) = differing
            && rank(a) != rank(b)
        {
            let message = "the chunk metadata contradicts itself: at one place, it has tags of different kinds (field, key or index)";
            return Err(WireError::new(Kind::Inconsistent, message));
        }
    }
    Ok(sorted)
}

fn compare(a: &[Tag], b: &[Tag]) -> Ordering {
    let first = a.iter().zip(b).map(|(a, b)| compare_tags(a, b)).find(|order| order.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_tags(a: &Tag, b: &Tag) -> Ordering {
    match (a, b) {
        (Tag::Field(a), Tag::Field(b)) => a.cmp(b),
        (Tag::Index(a), Tag::Index(b)) => a.cmp(b),
        (Tag::Key(a), Tag::Key(b)) => compare_keys(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(tag: &Tag) -> u8 {
    match tag {
        Tag::Field(_) => 0,
        Tag::Index(_) => 1,
        Tag::Key(_) => 2,
    }
}

fn compare_keys(a: &MapKey, b: &MapKey) -> Ordering {
    match (a, b) {
        (MapKey::Text(a), MapKey::Text(b)) => a.cmp(b),
        (MapKey::Text(_), _) => Ordering::Greater,
        (_, MapKey::Text(_)) => Ordering::Less,
        _ => number(a).cmp(&number(b)),
    }
}

fn number(key: &MapKey) -> i128 {
    match key {
        MapKey::Text(_) => 0,
        MapKey::Bool(value) => i128::from(*value),
        MapKey::Uint32(value) => i128::from(*value),
        MapKey::Uint64(value) => i128::from(*value),
        MapKey::Int32(value) => i128::from(*value),
        MapKey::Int64(value) => i128::from(*value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::ChunkedMessage;

    fn field(tags: Vec<Tag>, chunk: Option<u64>) -> ChunkedField {
        ChunkedField { tags, message: ChunkedMessage { chunk, fields: vec![] } }
    }

    #[test]
    fn parents_first_then_places_then_chunks() {
        use Tag::{Field, Index, Key};
        let key = |text: &str| Key(MapKey::Text(text.into()));
        let fields = [
            field(vec![Field(1), Index(2), Field(5), key("b"), Field(8)], Some(1)),
            field(vec![Field(1), Index(2), Field(5), key("a"), Field(8)], Some(2)),
            field(vec![Field(1), Index(10)], Some(3)),
            field(vec![Field(2)], Some(6)),
            field(vec![Field(2)], Some(5)),
            field(vec![Field(1), Index(2), Field(5), key("b")], Some(7)),
            field(vec![], Some(9)),
            field(vec![], Some(8)),
        ];
        let order: Vec<_> = sorted(&fields).unwrap().iter().filter_map(|field| field.message.chunk).collect();
        assert_eq!(order, [8, 9, 2, 7, 1, 3, 5, 6]);
    }

    #[test]
    fn kinds_that_differ_are_an_error() {
        let fields = [
            field(vec![Tag::Field(1), Tag::Index(0)], Some(0)),
            field(vec![Tag::Field(1), Tag::Key(MapKey::Bool(true))], Some(1)),
        ];
        assert_eq!(sorted(&fields).unwrap_err().kind(), Kind::Inconsistent);
    }
}

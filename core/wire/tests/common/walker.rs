//! A walker so plain that it is obviously right, and an index checked against it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::document::{Document, Part};
use wire::entry::Entry;
use wire::header::Wire;
use wire::index::Index;
use wire::schema::{Field, MISFIT};
use wire::{Limits, Schema};

use super::schema::ROOT;
use super::{Bytes, corpus};

/// One field as the walker sees it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    number: u32,
    wire: u8,
    start: usize,
    content: usize,
    content_end: usize,
    end: usize,
}

fn varint(data: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = data[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The field that begins at `start`.
fn field(data: &[u8], start: usize) -> Seen {
    let mut at = start;
    let tag = varint(data, &mut at);
    let (number, wire) = ((tag >> 3) as u32, (tag & 7) as u8);
    let mut seen = Seen { number, wire, start, content: at, content_end: at, end: at };
    match wire {
        0 => drop(varint(data, &mut at)),
        1 => at += 8,
        2 => {
            let len = varint(data, &mut at) as usize;
            seen.content = at;
            at += len;
        }
        3 => {
            while field(data, at).wire != 4 {
                at = field(data, at).end;
            }
            seen.content_end = at;
            seen.end = field(data, at).end;
            return seen;
        }
        4 => {}
        5 => at += 4,
        _ => unreachable!("the bytes are sound"),
    }
    (seen.content_end, seen.end) = (at, at);
    seen
}

fn fields(data: &[u8], from: usize, to: usize) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut at = from;
    while at < to {
        all.push(field(data, at));
        at = all.last().unwrap().end;
    }
    all
}

/// `number`, marked where the schema knows the field and it stands in another form.
fn marked(known: Option<&Field>, seen: &Seen) -> u32 {
    let fits = |field: &Field| {
        field.kind.wire() as u8 == seen.wire || (seen.wire == 2 && field.repeated && field.kind.is_packable())
    };
    if known.is_none_or(fits) { seen.number } else { seen.number | MISFIT }
}

struct Check<'a> {
    data: &'a [u8],
    schema: &'a Schema,
    document: &'a Document<'a>,
    floor: u64,
    nodes: u64,
}

impl Check<'_> {
    /// Asserts that `part` has the fields that the walker finds from `from` to `to`, and likewise for all below.
    fn message(&mut self, part: &Part, type_id: Option<u32>, from: usize, to: usize) {
        self.nodes += u64::from(matches!(part, Part::Node(_)));
        let seen = fields(self.data, from, to);
        let mut runs = self.document.entries(part).unwrap();
        let mut rest: Option<(Entry, u64)> = None;
        for each in &seen {
            let (entry, at) = rest.take().unwrap_or_else(|| (runs.next().unwrap().unwrap(), 0));
            let known = self.schema.field(type_id, each.number);
            assert_eq!((entry.number, entry.wire as u8), (marked(known, each), each.wire));
            let one = self.document.of_run(&entry, at).unwrap();
            let found = [one.start, one.content, one.content_end, one.end].map(|offset| offset as usize);
            let content = if each.wire == 2 || each.wire == 3 { each.content } else { found[1] };
            assert_eq!(found, [each.start, content, each.content_end, each.end]);
            if at + 1 < entry.count {
                rest = Some((entry, at + 1));
            }
            self.below(&entry, known, each, part);
        }
        assert!(rest.is_none() && runs.next().is_none());
        self.summary(part, &seen, type_id);
    }

    fn below(&mut self, entry: &Entry, known: Option<&Field>, seen: &Seen, parent: &Part) {
        let type_id = known.filter(|field| field.kind.is_message() && field.fits(entry.wire)).map(|field| field.target);
        let message = type_id.is_some() || entry.wire == Wire::Group;
        let indexed = matches!(parent, Part::Node(_));
        let len = if entry.wire == Wire::Group { entry.end - entry.start } else { entry.content_len() };
        let large = len >= self.floor;
        assert_eq!(entry.node.is_some(), message && indexed && large, "{entry:?}");
        if message {
            self.message(&Part::of(entry, type_id), type_id, seen.content, seen.content_end);
        }
    }

    /// Asserts that counts, sums and look-ups by position agree.
    fn summary(&self, part: &Part, seen: &[Seen], type_id: Option<u32>) {
        let mut by_number: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
        for each in seen {
            by_number.entry(marked(self.schema.field(type_id, each.number), each)).or_default().push(each);
        }
        for (number, all) in &by_number {
            assert_eq!(self.document.count(part, *number).unwrap(), all.len() as u64);
            let message = wire::document::Message { type_id, parts: vec![part.clone()] };
            for at in [0, all.len() / 2, all.len() - 1] {
                let found = self.document.element(&message, *number, at as u64).unwrap().unwrap();
                assert_eq!((found.start as usize, found.end as usize), (all[at].start, all[at].end));
            }
            assert_eq!(self.document.element(&message, *number, all.len() as u64).unwrap(), None);
        }
        if let Part::Node(id) = part {
            let summaries = self.document.index.node(*id).unwrap().fields().map(|field| {
                let field = field.unwrap();
                (field.number(), field.count() as usize, field.bytes() as usize)
            });
            let due = by_number
                .iter()
                .map(|(number, all)| (*number, all.len(), all.iter().map(|each| each.end - each.start).sum::<usize>()));
            assert!(summaries.eq(due));
        }
    }
}

/// Asserts that an index of `data`, sound at every level, lists exactly the fields that the walker finds.
pub fn check(data: &[u8], floor: u64) {
    let schema = Arc::new(super::schema::schema());
    let index = Index::open(Arc::new(corpus::index(data, floor))).unwrap();
    index.verify().unwrap();
    let source = Bytes(data);
    let document = Document::new(&index, &schema, &source, Limits::default()).unwrap();
    let mut check = Check { data, schema: &schema, document: &document, floor, nodes: 0 };
    check.message(&Part::Node(0), schema.type_named(ROOT), 0, data.len());
    assert_eq!(check.nodes, index.node_count());
}

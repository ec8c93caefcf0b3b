//! The search in messages that have nodes in the index.

use std::collections::HashMap;

use super::frame::{Frame, LONGEST_NAME, Piece, Step, called, key_of};
use super::window::{Held, WINDOW};
use super::{LEADS, Place, Search, WANTED, count_up};
use crate::document::{Message, Part};
use crate::entry::Entry;
use crate::error::Result;
use crate::fields::Fields;
use crate::header::Wire;
use crate::key::{self, Key};
use crate::schema::{Field, FieldKind, TypeId};

/// A map entry: key and message.
type Keyed = (OwnKey, Message);

/// An owned map key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum OwnKey {
    Text(Vec<u8>),
    Number(u64),
}

impl<'a> Search<'_, 'a> {
    /// Searches `message`, whose place is `frame`, and all messages below it.
    pub(super) fn message(&mut self, message: &Message, frame: &Frame<'_>, depth: u32) -> Result<()> {
        let mut size = 0u64;
        let mut start = None;
        for part in &message.parts {
            let span = self.doc.span(part)?;
            start = start.or(Some(span.start));
            size = size.saturating_add(span.end.saturating_sub(span.start));
        }
        if size < self.query.least {
            return Ok(());
        }
        if size <= WINDOW && message.parts.iter().all(|part| matches!(part, Part::Span(..))) {
            return self.hold(message, frame, depth);
        }
        self.doc.limits.check_depth(depth, start.unwrap_or(0))?;
        let role = self.role(frame.type_id);
        if role & WANTED > 0 {
            self.take(message, frame)?;
        }
        if role & LEADS > 0 { self.fields(message, frame, depth) } else { Ok(()) }
    }

    /// Reads `message` and continues the search in memory.
    fn hold(&mut self, message: &Message, frame: &Frame<'_>, depth: u32) -> Result<()> {
        if let [Part::Span(span, _)] = message.parts.as_slice() {
            let held = self.window.get(span)?;
            let pieces = [Piece { bytes: held.bytes(), base: span.start }];
            return self.within(&pieces, &frame.of(&pieces), depth);
        }
        let mut held: Vec<(Held, u64)> = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            let span = self.doc.span(part)?;
            held.push((self.window.get(&span)?, span.start));
        }
        let pieces: Vec<Piece<'_>> =
            held.iter().map(|(held, base)| Piece { bytes: held.bytes(), base: *base }).collect();
        self.within(&pieces, &frame.of(&pieces), depth)
    }

    fn fields(&mut self, message: &Message, frame: &Frame<'_>, depth: u32) -> Result<()> {
        let mut seen: Vec<(u32, u64)> = Vec::new();
        for part in &message.parts {
            for entry in self.doc.entries(part)? {
                let entry = entry?;
                let Some(field) = self.leading(frame.type_id, entry.number) else { continue };
                let ordinal = count_up(&mut seen, entry.number);
                if field.repeated && !self.doc.schema.is_map(field) {
                    self.below(field, Step::Index(ordinal), &of_entry(&entry, field.target), frame, depth)?;
                } else if ordinal == 0 && field.repeated {
                    self.map(message, field, frame, depth)?;
                } else if ordinal == 0 {
                    let child = self.merged(message, field)?;
                    self.below(field, Step::Alone, &child, frame, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Field `number` of type `type_id` if it may contain messages of the query; else None.
    fn leading(&self, type_id: TypeId, number: u32) -> Option<&'a Field> {
        let field = self.doc.schema.field(Some(type_id), number).filter(|field| field.kind.is_message())?;
        (self.role(field.target) > 0).then_some(field)
    }

    /// The message into which all occurrences of the singular `field` are merged.
    fn merged(&self, message: &Message, field: &Field) -> Result<Message> {
        let entries = self.doc.singular(message, field.number)?;
        let parts = entries.iter().map(|entry| Part::of(entry, Some(field.target))).collect();
        Ok(Message { type_id: Some(field.target), parts })
    }

    /// Searches `child`, which is one step below `frame`.
    fn below(&mut self, field: &Field, step: Step<'_>, child: &Message, frame: &Frame<'_>, depth: u32) -> Result<()> {
        if child.parts.is_empty() {
            return Ok(());
        }
        let name = self.name_of(child)?;
        self.message(child, &Frame::told(field.target, Some(frame), Some(field), step, name), depth + 1)
    }

    /// Searches the values of a map. Of entries with equal keys, the last counts, at the position of the first.
    fn map(&mut self, message: &Message, field: &'a Field, frame: &Frame<'_>, depth: u32) -> Result<()> {
        let Some(key) = self.doc.schema.field(Some(field.target), 1) else { return Ok(()) };
        for (own, entry) in self.entries_of(message, field, key)? {
            let step = Step::Key(key.kind, own.borrowed());
            let named = called(key.kind, own.borrowed());
            match entry.parts.as_slice() {
                [Part::Span(span, _)] if span.end - span.start < self.query.least => {}
                [Part::Span(span, _)] if span.end - span.start <= WINDOW => {
                    let held = self.window.get(span)?;
                    let pieces = [Piece { bytes: held.bytes(), base: span.start }];
                    self.entry_within(field, step, &pieces, frame, depth)?;
                }
                _ => self.entry(&entry, &Frame::told(field.target, Some(frame), Some(field), step, named), depth)?,
            }
        }
        Ok(())
    }

    /// Searches the value of the map's `entry`, whose place is `frame`.
    fn entry(&mut self, entry: &Message, frame: &Frame<'_>, depth: u32) -> Result<()> {
        if self.takes_entries(frame.type_id) {
            return self.take(entry, frame);
        }
        let Some(value) = self.leading(frame.type_id, 2) else { return Ok(()) };
        let child = self.merged(entry, value)?;
        if child.parts.is_empty() {
            return Ok(());
        }
        let name = self.name_of(&child)?;
        self.message(&child, &Frame::told(value.target, Some(frame), None, Step::Alone, name), depth + 1)
    }

    fn entries_of(&mut self, message: &Message, field: &Field, key: &Field) -> Result<Vec<Keyed>> {
        let mut entries: Vec<Keyed> = Vec::new();
        let mut places: HashMap<OwnKey, usize> = HashMap::new();
        for part in &message.parts {
            for entry in self.doc.entries(part)? {
                let entry = entry?;
                if entry.number != field.number {
                    continue;
                }
                let found = of_entry(&entry, field.target);
                let own = self.key_of_entry(&found, key)?;
                match places.get(&own).and_then(|&at| entries.get_mut(at)) {
                    Some(earlier) => earlier.1 = found,
                    None => {
                        places.insert(own.clone(), entries.len());
                        entries.push((own, found));
                    }
                }
            }
        }
        Ok(entries)
    }

    fn key_of_entry(&mut self, entry: &Message, field: &Field) -> Result<OwnKey> {
        if let [Part::Span(span, _)] = entry.parts.as_slice()
            && span.end - span.start <= WINDOW
        {
            let held = self.window.get(span)?;
            let piece = Piece { bytes: held.bytes(), base: span.start };
            return Ok(OwnKey::of(key_of(field, &[piece], self.doc.limits.depth)?));
        }
        let Some(last) = self.doc.singular(entry, field.number)?.pop() else {
            return Ok(OwnKey::of(key::default_key(field.kind)));
        };
        let last = self.doc.of_run(&last, last.count - 1)?;
        let held = self.window.get(&last.span())?;
        let found = Fields::new(held.bytes(), last.start, self.doc.limits.depth).next_field()?;
        let key = found.as_ref().and_then(|found| key::of_field(field.kind, found));
        Ok(OwnKey::of(key.unwrap_or(key::default_key(field.kind))))
    }

    fn take(&mut self, message: &Message, frame: &Frame<'_>) -> Result<()> {
        let path = self.begin(frame)?;
        for part in &message.parts {
            let mut last: Option<Entry> = None;
            for entry in self.doc.entries(part)? {
                let entry = entry?;
                self.found.check_room()?;
                if self.query.shows(self.doc.schema, frame.type_id, &entry) {
                    self.found.small(self.window.get(&entry.span())?.bytes());
                }
                match &mut last {
                    Some(run) if self.together(run, &entry, frame.type_id) => {
                        (run.content_end, run.end) = (entry.end, entry.end);
                        run.count += 1;
                    }
                    _ => last
                        .replace(entry)
                        .and_then(|last| Place::of(&last))
                        .into_iter()
                        .for_each(|place| self.found.place(place)),
                }
            }
            last.and_then(|last| Place::of(&last)).into_iter().for_each(|place| self.found.place(place));
        }
        self.found.end(frame.type_id, path)
    }

    /// True if `entry` shares a place with `run`. If `least` is set, small neighbours in one field of messages, strings
    /// or bytes share a place, because no caller reads them one by one.
    fn together(&self, run: &Entry, entry: &Entry, type_id: TypeId) -> bool {
        let small = |entry: &Entry| entry.content_len() < self.query.least;
        let delimited = matches!(entry.wire, Wire::Len | Wire::Group);
        let field = self.doc.schema.field(Some(type_id), entry.number);
        let alike = run.number == entry.number && delimited && !field.is_some_and(|field| field.kind.is_packable());
        alike && small(entry) && (run.count > 1 || small(run))
    }

    /// The name of `message`; None if it has none, if it is too long, or if the message is searched in memory.
    pub(super) fn name_of(&mut self, message: &Message) -> Result<Option<Vec<u8>>> {
        let is_span = |part: &Part| matches!(part, Part::Span(..));
        let known = message.type_id.and_then(|id| self.doc.schema.message(id));
        let field = known.and_then(|message| message.key());
        let Some(field) = field.filter(|field| field.kind == FieldKind::String) else { return Ok(None) };
        if self.query.least > 0 || message.parts.iter().all(is_span) {
            return Ok(None);
        }
        let last = self.doc.singular(message, field.number)?.pop();
        let Some(last) = last.filter(|last| last.content_len() <= LONGEST_NAME) else { return Ok(None) };
        // The bytes before the name are needed next, so one read of a remote source fetches both.
        let front = match message.parts.as_slice() {
            [part] => self.doc.span(part)?.start,
            _ => last.content,
        };
        Ok(Some(self.window.get_with(front, &last.content_span())?.bytes().to_vec()))
    }
}

impl OwnKey {
    fn of(key: Key<'_>) -> Self {
        match key {
            Key::Text(text) => Self::Text(text.to_vec()),
            Key::Number(number) => Self::Number(number),
        }
    }

    fn borrowed(&self) -> Key<'_> {
        match self {
            Self::Text(text) => Key::Text(text),
            Self::Number(number) => Key::Number(*number),
        }
    }
}

fn of_entry(entry: &Entry, type_id: TypeId) -> Message {
    Message { type_id: Some(type_id), parts: vec![Part::of(entry, Some(type_id))] }
}

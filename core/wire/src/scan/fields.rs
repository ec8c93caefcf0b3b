//! The processing of a field, which is skipped, entered, or searched for a key.

use super::{Frame, Scanner, Step};
use crate::entry::{Entry, NodeId};
use crate::error::{Result, WireError};
use crate::header::{self, Header, Wire};
use crate::index::{Builder, NodeRecord};
use crate::key::{self, Key};
use crate::schema::{Field, FieldKind, MISFIT, Message, Schema};

impl Scanner {
    /// Processes the field whose header is at `position`; `rest` has the bytes in memory from this offset on.
    pub(super) fn field(&mut self, header: &Header, rest: &[u8]) -> Result<Step> {
        let Some(frame) = self.frames.last().copied() else { return Ok(Step::Past(0)) };
        let left = frame.end - self.position;
        let len = match header.size() {
            Some(len) if len <= left => len,
            _ => {
                let left = left.saturating_sub(u64::from(header.head_len));
                return Err(header::past_parent(header, left, self.position));
            }
        };
        match header.wire {
            Wire::Len => self.delimited(header, len, rest, &frame),
            Wire::Group => self.enter(header, None, &frame),
            Wire::EndGroup => self.leave_group(header, &frame),
            _ if frame.key.is_some() && len > rest.len() as u64 => Ok(Step::Need(len as usize)),
            _ => {
                if let Some(number) = frame.scalar_key(header, rest, &self.schema) {
                    self.set_key(Key::Number(number));
                }
                let mut entry = Entry::new(header, self.position);
                entry.number = self.schema.fitted(frame.type_id, header.number, header.wire);
                self.builder.push(entry, None)?;
                Ok(Step::Past(len))
            }
        }
    }

    /// Processes a length-delimited field. Payloads and small messages are skipped, and large messages are entered.
    /// Small elements of a list with a key field are searched for their keys.
    fn delimited(&mut self, header: &Header, len: u64, rest: &[u8], frame: &Frame) -> Result<Step> {
        let field = self.schema.field(frame.type_id, header.number);
        let Some(child) = field.filter(|field| field.kind == FieldKind::Message) else {
            return self.payload(header, len, frame);
        };
        if header.content_len >= self.floor {
            return self.enter(header, Some(len), frame);
        }
        let message = self.schema.message(child.target).filter(|message| child.repeated && message.key().is_some());
        let Some(message) = message else {
            self.builder.push(Entry::new(header, self.position), None)?;
            return Ok(Step::Past(len));
        };
        if len > rest.len() as u64 {
            return Ok(Step::Need(len as usize));
        }
        let run = Run { rest, position: self.position, end: frame.end, floor: self.floor };
        let end = run.index(header, message, self.limits.depth, &mut self.builder)?;
        Ok(Step::Past(end - self.position))
    }

    /// Skips bytes, a string or packed values; a string that is the key of its message is hashed while it is skipped.
    fn payload(&mut self, header: &Header, len: u64, frame: &Frame) -> Result<Step> {
        let field = self.schema.field(frame.type_id, header.number);
        let mut entry = Entry::new(header, self.position);
        entry.number =
            field.filter(|field| !field.fits(Wire::Len)).map_or(header.number, |field| field.number | MISFIT);
        if frame.own_key(&self.schema).is_some_and(|key| key.number == header.number && key::is_text(key.kind)) {
            self.set_key(Key::Text(b""));
            self.hash_left = header.content_len;
        }
        self.builder.push(entry, None)?;
        Ok(Step::Past(len))
    }

    /// Opens a message, or a group when `len` is None, and continues inside it.
    fn enter(&mut self, header: &Header, len: Option<u64>, frame: &Frame) -> Result<Step> {
        self.limits.check_depth(self.frames.len() as u32, self.position)?;
        let field = self.schema.field(frame.type_id, header.number);
        let group = len.is_none();
        let kind = if group { FieldKind::Group } else { FieldKind::Message };
        let field = field.filter(|field| field.kind == kind);
        let type_id = field.map(|field| field.target);
        let message = type_id.and_then(|id| self.schema.message(id));
        let keyed = message.filter(|_| field.is_some_and(|field| field.repeated));
        let key = keyed.and_then(|message| message.key()).map(|key| key::default_key(key.kind).hash());
        let content = self.position + u64::from(header.head_len);
        let end = len.map_or(frame.end, |len| self.position + len);
        let (start, number) = (self.position, self.schema.fitted(frame.type_id, header.number, header.wire));
        let record = NodeRecord::opening(number, group, start, content);
        self.builder.open(record, message.map(|message| message.name.as_str()))?;
        self.frames.push(Frame { type_id, number, start, content, end, group, key });
        Ok(Step::Past(u64::from(header.head_len)))
    }

    fn leave_group(&mut self, header: &Header, frame: &Frame) -> Result<Step> {
        if !frame.group || frame.number & !MISFIT != header.number {
            return Err(header::stray_end(header.number, self.position));
        }
        self.close(frame, self.position, self.position + u64::from(header.head_len))?;
        Ok(Step::Past(u64::from(header.head_len)))
    }

    /// Closes the messages that end at `position`.
    #[inline]
    pub(super) fn close_finished(&mut self, position: u64) -> Result<()> {
        while let Some(frame) = self.frames.last().copied() {
            if frame.end > position || self.hash_left > 0 || self.frames.len() == 1 {
                break;
            }
            if frame.group {
                let message = format!("the group of field {} has no end", frame.number & !MISFIT);
                return Err(WireError::corrupt(frame.start, message));
            }
            self.close(&frame, frame.end, frame.end)?;
        }
        Ok(())
    }

    fn close(&mut self, frame: &Frame, content_end: u64, end: u64) -> Result<()> {
        self.frames.pop();
        let keep = !frame.group || end - frame.start >= self.floor;
        let node: Option<NodeId> = self.builder.close(content_end, end, keep);
        let Frame { number, start, content, .. } = *frame;
        let wire = if frame.group { Wire::Group } else { Wire::Len };
        let entry = Entry { number, wire, start, content, content_end, end, count: 1, node };
        self.builder.push(entry, frame.key)
    }

    fn set_key(&mut self, key: Key<'_>) {
        if let Some(top) = self.frames.last_mut() {
            top.key = Some(key.hash());
        }
    }
}

/// A run of small list elements; `rest` begins with those that are in memory.
struct Run<'a> {
    rest: &'a [u8],
    /// The offset of `rest`.
    position: u64,
    /// The offset after the message that contains the list.
    end: u64,
    /// The size in bytes from which an element is not small.
    floor: u64,
}

impl<'a> Run<'a> {
    /// Indexes all elements of the run with their keys; `first` is the header of the first element. Returns the offset
    /// after the last element.
    fn index(mut self, first: &Header, message: &Message, depth: u32, builder: &mut Builder) -> Result<u64> {
        let mut header = *first;
        loop {
            let (entry, content) = self.take(&header);
            let key = key::of_element(message, content, entry.content, depth)?;
            builder.push(entry, key.map(|key| key.hash()))?;
            match self.next_like(&header)? {
                Some(next) => header = next,
                None => return Ok(self.position),
            }
        }
    }

    /// Takes the element with this header; returns its entry and content.
    #[inline]
    fn take(&mut self, header: &Header) -> (Entry, &'a [u8]) {
        let entry = Entry::new(header, self.position);
        let content = usize::from(header.head_len);
        let end = content + header.content_len as usize;
        let taken = self.rest.get(content..end).unwrap_or_default();
        self.rest = self.rest.get(end..).unwrap_or_default();
        self.position = entry.end;
        (entry, taken)
    }

    /// The header of the next element. None when another field or a large element follows, or when the element is not
    /// completely in memory.
    #[inline]
    fn next_like(&self, header: &Header) -> Result<Option<Header>> {
        let room = (self.rest.len() as u64).min(self.end - self.position);
        if room == 0 {
            return Ok(None);
        }
        let next = header::read(self.rest, self.position)?;
        Ok(next.filter(|next| {
            let same = next.number == header.number && next.wire == Wire::Len;
            same && next.content_len < self.floor && next.size().is_some_and(|size| size <= room)
        }))
    }
}

impl Frame {
    /// The key field of this message; None when the parent records no keys or the type has no key.
    #[inline]
    fn own_key<'s>(&self, schema: &'s Schema) -> Option<&'s Field> {
        self.key?;
        schema.message(self.type_id?)?.key()
    }

    /// The numeric key of this message if the field of `header` in `rest` contains it; else None.
    #[inline]
    fn scalar_key(&self, header: &Header, rest: &[u8], schema: &Schema) -> Option<u64> {
        let field = self.own_key(schema).filter(|field| field.number == header.number)?;
        let head = usize::from(header.head_len);
        let content = rest.get(head..head + header.content_len as usize)?;
        key::number(field.kind, header, content)
    }
}

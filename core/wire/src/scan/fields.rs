//! What becomes of a field: stepped over, entered, or looked through for a key.

use super::{Frame, Scanner, Step};
use crate::entry::{Entry, NodeId};
use crate::error::{Result, WireError};
use crate::header::{self, Header, Wire};
use crate::index::NodeRecord;
use crate::key::{self, Key};
use crate::schema::{Field, FieldKind, MISFIT, Schema};

impl Scanner {
    /// Deals with the field whose head stands at `position`; `rest` is what is there of it and after it.
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

    /// A length-delimited field: entered when it is a message of some size, looked through when its key is wanted.
    fn delimited(&mut self, header: &Header, len: u64, rest: &[u8], frame: &Frame) -> Result<Step> {
        let field = self.schema.field(frame.type_id, header.number);
        let Some(child) = field.filter(|field| field.kind == FieldKind::Message) else {
            let mut entry = Entry::new(header, self.position);
            entry.number =
                field.filter(|field| !field.fits(Wire::Len)).map_or(header.number, |field| field.number | MISFIT);
            if frame.own_key(&self.schema).is_some_and(|key| key.number == header.number && key::is_text(key.kind)) {
                self.set_key(Key::Text(b""));
                self.hash_left = header.content_len;
            }
            self.builder.push(entry, None)?;
            return Ok(Step::Past(len));
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
        // Elements of a list mostly follow each other: all that are here are taken in one go.
        let (mut header, mut at, mut end) = (*header, 0, len as usize);
        loop {
            let position = self.position + at as u64;
            let entry = Entry::new(&header, position);
            let content = rest.get(at + usize::from(header.head_len)..end).unwrap_or_default();
            let key = key::of_element(message, content, entry.content, self.limits.depth)?;
            self.builder.push(entry, key.map(|key| key.hash()))?;
            at = end;
            let following = rest.get(at..).unwrap_or_default();
            let room = (following.len() as u64).min(frame.end - entry.end);
            let next = if room > 0 { header::read(following, entry.end)? } else { None };
            let next = next.filter(|next| (next.number, next.wire) == (header.number, Wire::Len));
            let fits =
                next.filter(|next| next.content_len < self.floor && next.size().is_some_and(|size| size <= room));
            let Some(next) = fits else { return Ok(Step::Past(at as u64)) };
            end += usize::from(next.head_len) + next.content_len as usize;
            header = next;
        }
    }

    /// Opens a message or group (`len` unknown) and goes on inside it.
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

impl Frame {
    /// The field by which this message is known among its like, where that is wanted.
    #[inline]
    fn own_key<'s>(&self, schema: &'s Schema) -> Option<&'s Field> {
        self.key?;
        schema.message(self.type_id?)?.key()
    }

    /// The number by which this message is known, where that is what follows `header` in `rest`.
    #[inline]
    fn scalar_key(&self, header: &Header, rest: &[u8], schema: &Schema) -> Option<u64> {
        let field = self.own_key(schema).filter(|field| field.number == header.number)?;
        let head = usize::from(header.head_len);
        let content = rest.get(head..head + header.content_len as usize)?;
        key::number(field.kind, header, content)
    }
}

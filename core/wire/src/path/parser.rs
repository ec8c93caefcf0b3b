//! The parser of paths.

use std::collections::BTreeSet;

use super::{Condition, Name, Path, Segment, Select, Values};
use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;

/// Most conditions in one pair of brackets, because each condition is tested on every element.
pub(super) const MOST_CONDITIONS: usize = 8;
/// Most values in one pair of braces.
pub(super) const MOST_VALUES: usize = 64;

impl Path {
    /// Parses `text`; fails with a `Syntax` error when it is not a path or is too long.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self> {
        if text.len() > limits.path {
            let message = format!("a path has {} bytes in UTF-8, but at most {} are allowed", text.len(), limits.path);
            return Err(WireError::new(Kind::Syntax, message));
        }
        let mut parser = Parser { text, at: 0, depth: limits.depth as usize };
        let mut segments = Vec::new();
        while !parser.is_done() {
            if !segments.is_empty() {
                parser.expect('.', "a dot or a bracket")?;
            }
            segments.push(parser.segment()?);
        }
        Ok(Self { segments })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Most names on the way to the field of a condition.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<()> {
        if self.eat(wanted) { Ok(()) } else { Err(self.error(&format!("expected {what}"))) }
    }

    fn error(&self, what: &str) -> WireError {
        let found = self.peek().map_or("the end".to_owned(), |c| format!("{c:?}"));
        let message = format!(
            "{what} at character {}, found {found}",
            self.text.get(..self.at).unwrap_or_default().chars().count() + 1
        );
        WireError::new(Kind::Syntax, message).on(format!("path {:?}", self.text))
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    fn segment(&mut self) -> Result<Segment> {
        let name = self.name()?;
        if !self.eat('[') {
            return Ok(Segment { name, select: None });
        }
        let select = self.select()?;
        self.expect(']', "a closing bracket")?;
        Ok(Segment { name, select: Some(select) })
    }

    fn name(&mut self) -> Result<Name> {
        let start = self.at;
        if self.eat('[') {
            return self.extension(start);
        }
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let first = word.chars().next();
        let name = match first {
            Some(c) if c.is_ascii_digit() => {
                word.parse().ok().filter(|n| (1..=crate::limits::MAX_FIELD_NUMBER).contains(n)).map(Name::Number)
            }
            Some(_) => Some(Name::Text(word.to_owned())),
            None => None,
        };
        name.ok_or_else(|| {
            self.at = start;
            self.error("expected a field's name or number")
        })
    }

    /// The full name of an extension after the opening bracket at `start`; the brackets are part of the name.
    fn extension(&mut self, start: usize) -> Result<Name> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        let is_word = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !name.split('.').all(is_word) {
            return Err(
                self.at_again(start, "expected a field's name or number, or the full name of an extension in brackets")
            );
        }
        self.expect(']', "a closing bracket")?;
        Ok(Name::Text(format!("[{name}]")))
    }

    fn select(&mut self) -> Result<Select> {
        match self.peek() {
            Some('*') => {
                self.at += 1;
                Ok(Select::All)
            }
            Some('"') => self.string().map(Select::Text),
            Some(c) if c.is_ascii_digit() || c == '-' || c == ':' => self.numbers(),
            Some(_) => self.word(),
            None => Err(self.error("expected an index, a key or a condition")),
        }
    }

    fn word(&mut self) -> Result<Select> {
        let start = self.at;
        let name = self.name()?;
        match &name {
            _ if matches!(self.peek(), Some('=' | '.')) => self.conditions(start),
            Name::Text(word) if word == "true" || word == "false" => Ok(Select::Word(word == "true")),
            _ => Err(self.at_again(start, "expected an index, a quoted key or a condition such as name=\"x\"")),
        }
    }

    /// The conditions that begin at `start`.
    fn conditions(&mut self, start: usize) -> Result<Select> {
        self.at = start;
        let mut conditions = Vec::new();
        self.list(MOST_CONDITIONS, "conditions", |parser| {
            conditions.push(parser.condition()?);
            Ok(())
        })?;
        Ok(Select::Where(conditions))
    }

    fn condition(&mut self) -> Result<Condition> {
        let start = self.at;
        let mut field = vec![self.name()?];
        while self.eat('.') {
            field.push(self.name()?);
        }
        if field.len() > self.depth {
            return Err(self.at_again(start, &format!("expected a field path of at most {} names", self.depth)));
        }
        if !self.eat('=') {
            return Err(self.at_again(start, "expected an index, a quoted key or a condition such as name=\"x\""));
        }
        let values = if self.eat('{') { Values::Are(self.set()?) } else { Values::Has(self.string()?) };
        Ok(Condition { field, values })
    }

    /// The values before the closing brace.
    fn set(&mut self) -> Result<BTreeSet<Vec<u8>>> {
        let mut values = BTreeSet::new();
        if !self.eat('}') {
            self.list(MOST_VALUES, "values", |parser| {
                values.insert(parser.string()?);
                Ok(())
            })?;
            self.expect('}', "a comma or a closing brace")?;
        }
        Ok(values)
    }

    /// Calls `item` for up to `most` items that are separated by commas; spaces after a comma are skipped.
    fn list(&mut self, most: usize, what: &str, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for _ in 0..most {
            item(self)?;
            if !self.eat(',') {
                return Ok(());
            }
            self.take_while(|c| c == ' ');
        }
        Err(self.error(&format!("expected at most {most} {what}")))
    }

    fn numbers(&mut self) -> Result<Select> {
        let start = self.at;
        if self.peek() != Some(':') {
            let digits = self.take_while(|c| c.is_ascii_digit() || c == '-');
            if matches!(self.peek(), Some('=' | '.')) {
                return self.conditions(start);
            }
            if self.peek() != Some(':') {
                let value = digits.parse::<i128>().ok().filter(|_| digits.len() <= 21);
                return value.map(Select::Integer).ok_or_else(|| self.at_again(start, "expected an index"));
            }
            self.at = start;
        }
        let from = self.bound()?;
        self.expect(':', "a colon")?;
        Ok(Select::Slice(from, self.bound()?))
    }

    fn bound(&mut self) -> Result<Option<u64>> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Ok(None);
        }
        digits.parse().map(Some).map_err(|_| self.at_again(start, "expected a position below 2^64"))
    }

    fn at_again(&mut self, start: usize, what: &str) -> WireError {
        self.at = start;
        self.error(what)
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        self.expect('"', "a quoted string")?;
        let mut out = Vec::new();
        loop {
            match self.next() {
                Some('"') => return Ok(out),
                Some('\\') => self.escape(&mut out)?,
                Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return Err(self.error("expected a closing quote")),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let simple = match self.peek() {
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('"') => b'"',
            Some('\\') => b'\\',
            Some('x') => {
                let digits = self.rest().get(1..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let byte = byte.ok_or_else(|| self.error("expected an escape \\xHH"))?;
                self.at += 2;
                byte
            }
            _ => return Err(self.error("expected an escape \\\", \\\\, \\n, \\t or \\xHH")),
        };
        self.at += 1;
        out.push(simple);
        Ok(())
    }
}

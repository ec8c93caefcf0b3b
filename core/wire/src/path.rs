//! Paths, such as `graph.node[3].attr["value"].tensor`, `7.1[3].5["value"]` or `node[name="conv1"]`. An extension is
//! written as `options.[my.package.weight]`. Masks may also contain `[2:10]` and `[*]`. The parser only checks the
//! syntax; the meaning depends on the message to which the path is applied.

mod condition;
mod parser;

use std::fmt;

pub use condition::{Condition, Values};

/// A parsed path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The segments; empty for the message itself.
    pub segments: Vec<Segment>,
}

/// One step down: a field, and a selection of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The field.
    pub name: Name,
    /// The selection in brackets; None without brackets.
    pub select: Option<Select>,
}

/// A field by name or by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A name, which needs a schema; for an extension, its full name in brackets.
    Text(String),
    /// A number.
    Number(u32),
}

/// A selection of elements in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Select {
    /// The position of an element, or an integer key of a map.
    Integer(i128),
    /// A string key of a map.
    Text(Vec<u8>),
    /// A bool key of a map.
    Word(bool),
    /// The first element that meets all these conditions; at least one condition exists.
    Where(Vec<Condition>),
    /// The elements from the first position to the second, which is excluded.
    Slice(Option<u64>, Option<u64>),
    /// All elements.
    All,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            write!(f, "{}{segment}", if i > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.select {
            Some(select) => write!(f, "{}[{select}]", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: &Option<u64>| bound.map_or(String::new(), |bound| bound.to_string());
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(bytes) => f.write_str(&quote(bytes)),
            Self::Word(value) => write!(f, "{value}"),
            Self::Where(conditions) => {
                let conditions: Vec<String> = conditions.iter().map(Condition::to_string).collect();
                f.write_str(&conditions.join(", "))
            }
            Self::Slice(from, to) => write!(f, "{}:{}", bound(from), bound(to)),
            Self::All => f.write_str("*"),
        }
    }
}

/// Quotes `bytes` for a path; bytes that are not UTF-8 are written as `\xHH`.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::from('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() && c.is_ascii() => out.push_str(&format!("\\x{:02x}", c as u32)),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::parser::{MOST_CONDITIONS, MOST_VALUES};
    use super::*;
    use crate::error::{Kind, Result};
    use crate::limits::Limits;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Path> {
        Path::parse(text, &Limits::default())
    }

    #[test]
    fn reads_every_form() {
        let texts = [
            "graph.node[3].attr[\"value\"].tensor",
            "7.1[3].5[\"value\"]",
            "graph.node[name=\"conv1\"]",
            "node[1=\"a\"]",
            "graphs[info.tags=\"serve\"]",
            "graphs[1.4=\"serve\", name=\"\"].node[0]",
            "graphs[info.tags={\"gpu\", \"serve\"}]",
            "graphs[info.tags={}]",
            "a[-5]",
            "a[true].b[18446744073709551615]",
            "node[2:10].name",
            "node[:10]",
            "node[2:]",
            "node[:]",
            "node[*].op",
            "m[\"a\\\"b\\\\\\n\\xff\"]",
            "[ext]",
            "[my.pkg.ext][3].a.[_x.Y2].[ext][true]",
            "a[[my.ext].b=\"x\"].c",
            "",
        ];
        for text in texts {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn says_where_it_breaks() {
        let cases = [
            ("graph..node", 7),
            (".a", 1),
            ("a.", 3),
            ("a[", 3),
            ("a[3", 4),
            ("a[\"x", 5),
            ("a[x]", 3),
            ("a b", 2),
            ("0", 1),
            ("536870912", 1),
            ("a[--1]", 3),
            ("a[1:2:3]", 6),
            ("é", 1),
            ("a[99999999999999999999999]", 3),
            ("a[b.=\"x\"]", 5),
            ("a[b=\"x\",]", 9),
            ("a[b=\"x\" c=\"y\"]", 8),
            ("a[b={\"x\"]", 9),
            ("a[b={\"x\",}]", 10),
            ("a[b.c]", 3),
            ("a[1.2]", 3),
            ("[]", 1),
            ("[a..b]", 1),
            ("[.a]", 1),
            ("[a.1]", 1),
            ("[3]", 1),
            ("a.[b", 5),
            ("a.[b c]", 5),
            ("a[b.c][3]", 3),
        ];
        for (text, at) in cases {
            let error = parse(text).unwrap_err();
            let place = format!("at character {at},");
            assert!(error.kind() == Kind::Syntax && error.message().contains(&place), "{text}: {error}");
        }
    }

    #[test]
    fn conditions_are_bounded() {
        let with = |count: usize, value: &str| parse(&format!("a[{}]", vec![format!("b={value}"); count].join(",")));
        let many = format!("{{{}}}", vec!["\"x\""; MOST_VALUES].join(","));
        assert!(with(MOST_CONDITIONS, "\"x\"").is_ok() && with(1, &many).is_ok());
        for refused in [with(MOST_CONDITIONS + 1, "\"x\""), with(1, &many.replace('}', ",\"x\"}"))] {
            assert_eq!(refused.unwrap_err().kind(), Kind::Syntax);
        }
        let deep = |names: usize| parse(&format!("a[{}=\"x\"]", vec!["b"; names].join(".")));
        let most = Limits::default().depth as usize;
        assert!(deep(most).is_ok() && deep(most + 1).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn keys_of_any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let text = format!("a[{}]", quote(&bytes));
            let expected = Segment { name: Name::Text("a".into()), select: Some(Select::Text(bytes)) };
            prop_assert_eq!(parse(&text).unwrap().segments, vec![expected]);
        }
    }
}

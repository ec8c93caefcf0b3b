//! The rules of a plan, which decide by path which parts become chunks. `PATH: always`, `PATH: 64KiB` (from this size
//! on) and `PATH: never` decide about the part itself. With `PATH: whole`, nothing below it becomes a chunk. With
//! `PATH: every 1000`, its elements are taken out, so many in each piece.
//!
//! For a repeated field, a path with brackets means single elements, and a path without brackets means all elements
//! together. A later rule takes precedence over an earlier one.

mod meaning;

use std::fmt;

use crate::error::{Kind, Result, WireError};
use crate::limits::Limits;
use crate::path::Path;

pub(super) use meaning::{Active, Meaning, Wish};

/// Most rules of a plan, so that a set of rules fits in one word.
pub const MOST_RULES: usize = 64;
/// Most bytes of all rules together.
const MOST_TEXT: usize = 16 << 10;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    path: Path,
    action: Action,
}

/// The effect of a rule on the parts at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The part is a chunk from this size in bytes on; 1 means every part that is not empty.
    AtLeast(u64),
    /// The part is not a chunk, but parts below it may be.
    Never,
    /// Nothing below the part becomes a chunk.
    Whole,
    /// The elements are taken out in pieces of up to this number of elements.
    Every(u64),
}

/// Parses the rules of a plan; a `Syntax` error names the rule and the place in the rule.
pub fn parse(texts: &[String], limits: &Limits) -> Result<Vec<Rule>> {
    let size: usize = texts.iter().map(String::len).sum();
    if texts.len() > MOST_RULES || size > MOST_TEXT {
        let message = format!(
            "{} rules with {size} bytes in total are too many: at most {MOST_RULES} rules with {MOST_TEXT} bytes in total are allowed",
            texts.len()
        );
        return Err(WireError::new(Kind::Limit, message));
    }
    texts.iter().map(|text| Rule::parse(text, limits)).collect()
}

impl Rule {
    fn parse(text: &str, limits: &Limits) -> Result<Self> {
        let Some((path, action)) = text.rsplit_once(':').filter(|(path, _)| !path.trim().is_empty()) else {
            return Err(wrong(text, 0, "expected a path, a colon and an action"));
        };
        let action = Action::parse(action.trim()).ok_or_else(|| {
            let what = "expected one of the actions always, never, whole, every N, or a size such as 64KiB";
            wrong(text, path.len() + 1, what)
        })?;
        let path = path.trim();
        let path = Path::parse(path, limits).map_err(|error| {
            WireError::new(Kind::Syntax, error.message().to_owned()).on(format!("the path {path:?} of a rule"))
        })?;
        Ok(Self { path, action })
    }
}

/// The error for a rule that is wrong at byte `at`.
fn wrong(text: &str, at: usize, what: &str) -> WireError {
    let place = text.get(..at).unwrap_or_default().chars().count() + 1;
    WireError::new(Kind::Syntax, format!("{what} at character {place}")).on(format!("rule {text:?}"))
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::AtLeast(1)),
            "never" => Some(Self::Never),
            "whole" => Some(Self::Whole),
            _ => match text.strip_prefix("every ") {
                Some(count) => count.trim().parse().ok().filter(|count| *count > 0).map(Self::Every),
                None => size(text).map(Self::AtLeast),
            },
        }
    }
}

/// Parses a size of at least 1 byte, as people write it.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| (1..1 << 63).contains(size))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::AtLeast(1) => write!(f, "{}: always", self.path),
            Action::AtLeast(size) => write!(f, "{}: {size}", self.path),
            Action::Never => write!(f, "{}: never", self.path),
            Action::Whole => write!(f, "{}: whole", self.path),
            Action::Every(count) => write!(f, "{}: every {count}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Rule> {
        Rule::parse(text, &Limits::default())
    }

    #[test]
    fn reads_every_form() {
        let forms = [
            ("a.b[*].c[\"x: y\"]: always", "a.b[*].c[\"x: y\"]: always"),
            (" a :64KiB", "a: 65536"),
            ("a[2:3]:never", "a[2:3]: never"),
            ("1.2: whole", "1.2: whole"),
            ("a: every 1000", "a: every 1000"),
        ];
        for (text, canonical) in forms {
            assert_eq!(one(text).unwrap().to_string(), canonical);
            assert_eq!(one(canonical).unwrap(), one(text).unwrap());
        }
    }

    #[test]
    fn says_where_it_breaks() {
        let cases = [
            ("", "character 1"),
            ("always", "character 1"),
            (": always", "character 1"),
            ("a: often", "character 3"),
            ("é: 0", "character 3"),
            ("a: every 0", "character 3"),
            ("a: 16777216TiB", "character 3"),
            ("a..b: always", "character 3"),
            ("a[: always", "character 3"),
        ];
        for (text, place) in cases {
            let error = one(text).unwrap_err();
            assert!(error.kind() == Kind::Syntax && error.message().contains(place), "{text}: {error}");
        }
    }
}

//! Regular expressions for names: they never backtrack, need bounded memory, and have a cost that is known beforehand.

use regex::bytes::{Regex, RegexBuilder};

use crate::{Kind, Result, WireError};

/// Most characters of an expression.
const LONGEST: usize = 256;
/// Most nested groups.
const DEEPEST: u32 = 16;
/// Sizes of a compiled expression in bytes; the smallest sufficient size is used, because more states cost more per
/// byte.
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// A compiled expression, which may match anywhere in a name unless it is anchored. Case matters unless `(?i)` is set.
pub struct Pattern {
    regex: Regex,
    size: usize,
}

impl Pattern {
    /// Compiles `text`; a `Syntax` error describes the problem.
    pub fn new(text: &str) -> Result<Self> {
        if text.chars().count() > LONGEST {
            return Err(WireError::new(
                Kind::Syntax,
                format!("the regular expression is too long: at most {LONGEST} characters"),
            ));
        }
        for size in SIZES {
            let built = RegexBuilder::new(text).size_limit(size).dfa_size_limit(4 * size).nest_limit(DEEPEST).build();
            match built {
                Ok(regex) => return Ok(Self { regex, size }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(WireError::new(Kind::Syntax, told(&error))),
            }
        }
        let message =
            "the regular expression is too large: use smaller repetitions, or (?-u) before classes such as \\w";
        Err(WireError::new(Kind::Syntax, message))
    }

    /// True if `name` contains a match of the expression.
    pub fn is_in(&self, name: &[u8]) -> bool {
        self.regex.is_match(name)
    }

    /// The largest work per byte, as a multiple of the work for the smallest expressions.
    pub fn weight(&self) -> usize {
        self.size / SIZES[0]
    }
}

/// The last line of the parser's message; the lines before it only draw the place of the error.
fn told(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    format!("invalid regular expression: {}", last.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_expressions_say() {
        let pattern = Pattern::new(r"^encoder\.layer\.(3|11)\..*bias$").unwrap();
        assert!(pattern.is_in(b"encoder.layer.11.attention.bias"));
        assert!(!pattern.is_in(b"encoder.layer.1.attention.bias"));
        assert!(Pattern::new("(?i)GRÖSSE").unwrap().is_in("größse größe GröSSe".as_bytes()));
        assert!(Pattern::new(r"^.{3}$").unwrap().is_in("שלו".as_bytes()));
        assert!(Pattern::new("b").unwrap().is_in(b"a\xffb"), "bytes that are no UTF-8 are passed over");
    }

    #[test]
    fn an_expression_that_is_none_is_refused_with_its_reason() {
        for (text, said) in
            [("(", "unclosed group"), ("[z-a]", "invalid character class range"), (r"(a)\1", "backreferences")]
        {
            let error = Pattern::new(text).err().unwrap();
            assert_eq!(error.kind(), Kind::Syntax);
            assert!(error.message().contains(said), "{}", error.message());
            assert!(!error.message().contains('\n'));
        }
    }

    #[test]
    fn expressions_are_bounded() {
        assert!(Pattern::new(&"a".repeat(257)).is_err());
        assert!(Pattern::new(&format!("{}a{}", "(".repeat(20), ")".repeat(20))).is_err());
        assert!(Pattern::new(r"(\w{100}){100}").err().unwrap().message().contains("too large"));
        assert_eq!(Pattern::new("bias$").unwrap().weight(), 1);
        assert!(Pattern::new(r"\w{3}").unwrap().weight() > 4);
    }

    #[test]
    fn a_match_that_would_backtrack_ends() {
        let pattern = Pattern::new(r"^(a|aa)+$").unwrap();
        assert!(!pattern.is_in(format!("{}b", "a".repeat(100_000)).as_bytes()));
    }
}

//! The one error of the crate: what kind, what happened, at which byte offset, at which path.

use std::fmt;

/// What a [`WireError`] is about; the binding maps each kind to one public exception class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The bytes are not a proto (or riegeli file, or index): truncated, overlong, inconsistent.
    Corrupt,
    /// A checksum that we took disagrees with the bytes it covers: what we keep is damaged, and no model is to blame.
    Checksum,
    /// A limit of [`crate::Limits`] was reached.
    Limit,
    /// A path, slice or option that does not parse.
    Syntax,
    /// A well-formed path that matches nothing here.
    NotFound,
    /// A chunked proto whose metadata and chunks do not fit together.
    Inconsistent,
    /// Understood, but not possible.
    Unsupported,
    /// The caller's source failed; the cause is kept.
    Source,
}

/// The result type used throughout.
pub type Result<T> = std::result::Result<T, WireError>;

/// An error with its kind and, where known, the byte offset and the field path it happened at.
pub struct WireError(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    offset: Option<u64>,
    path: Option<String>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl WireError {
    /// An error of `kind` that says `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), offset: None, path: None, cause: None }))
    }

    /// Bytes that are not what they should be, at `offset`.
    pub fn corrupt(offset: u64, message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message).at(offset)
    }

    /// A failure of the caller's source; [`WireError::into_cause`] gives it back.
    pub fn from_source(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        let mut error = Self::new(Kind::Source, cause.to_string());
        error.0.cause = Some(cause);
        error
    }

    /// The same error, known to have happened at `offset` unless an offset is there already.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// The same error, known to have happened at `path` unless a path is there already.
    #[must_use]
    pub fn on(mut self, path: impl Into<String>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// The same error with its offset moved by `base`: for parsers that count from the start of a part.
    #[must_use]
    pub fn shifted(mut self, base: u64) -> Self {
        self.0.offset = self.0.offset.map(|offset| offset.saturating_add(base));
        self
    }

    /// What it is about.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What happened, without offset and path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The byte it happened at.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The field path it happened at.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The source's own error, for [`Kind::Source`].
    pub fn into_cause(self) -> Option<Box<dyn std::error::Error + Send + Sync>> {
        self.0.cause
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(offset) = self.0.offset {
            write!(f, " at byte {offset}")?;
        }
        if let Some(path) = &self.0.path {
            write!(f, " in {path}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for WireError {}

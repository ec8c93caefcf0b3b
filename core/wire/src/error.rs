//! The error type of the crate: a kind, a message, and where known, the byte offset and the field path.

use std::fmt;

/// The category of a [`WireError`]; the Python binding maps each kind to one public exception class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The bytes are not a proto, riegeli file or index, because they are truncated, too long or inconsistent.
    Corrupt,
    /// A checksum that this software wrote does not match: stored data is damaged, but the model itself is not wrong.
    Checksum,
    /// A limit of [`crate::Limits`] was reached.
    Limit,
    /// A path, slice or option does not parse.
    Syntax,
    /// A valid path matches nothing in this proto.
    NotFound,
    /// The metadata of a chunked proto contradicts its chunks.
    Inconsistent,
    /// A request is valid but not supported.
    Unsupported,
    /// The caller's source failed; the error contains the cause.
    Source,
}

/// The result type of the whole crate.
pub type Result<T> = std::result::Result<T, WireError>;

/// An error with its kind, and where known, the byte offset and the field path at which it occurred.
pub struct WireError(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    offset: Option<u64>,
    path: Option<String>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl WireError {
    /// An error of `kind` with `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), offset: None, path: None, cause: None }))
    }

    /// A `Corrupt` error for the bytes at `offset`.
    pub fn corrupt(offset: u64, message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message).at(offset)
    }

    /// The error for a failure of the caller's source; [`WireError::into_cause`] returns the cause.
    pub fn from_source(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        let mut error = Self::new(Kind::Source, cause.to_string());
        error.0.cause = Some(cause);
        error
    }

    /// Sets the offset unless the error already has one.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Sets the field path unless the error already has one.
    #[must_use]
    pub fn on(mut self, path: impl Into<String>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// Adds `base` to the offset, for parsers that count from the start of a part.
    #[must_use]
    pub fn shifted(mut self, base: u64) -> Self {
        self.0.offset = self.0.offset.map(|offset| offset.saturating_add(base));
        self
    }

    /// The category of the error.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The description, without offset and path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The byte offset of the error; None when unknown.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The field path of the error; None when unknown.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The source's own error, for [`Kind::Source`]; None for other kinds.
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

//! Field masks: which parts of a message to keep, as a tree of selections.

use crate::error::{Kind, Result, WireError};
use crate::path::{Name, Path, Select};

/// What to keep of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// All of it.
    pub whole: bool,
    /// Otherwise these fields, or elements of them, and what to keep of each.
    pub picks: Vec<Pick>,
}

/// One field of a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The field.
    pub name: Name,
    /// Which elements; all when not said.
    pub select: Option<Select>,
    /// What to keep of each.
    pub mask: Mask,
}

impl Mask {
    /// The mask that keeps what `paths` lead to.
    pub fn new(paths: &[Path]) -> Result<Self> {
        let mut root = Self::default();
        for path in paths {
            if path.segments.is_empty() {
                let message = "a mask's path is empty: leave the mask away to keep everything";
                return Err(WireError::new(Kind::Syntax, message));
            }
            let mut at = &mut root;
            for segment in &path.segments {
                at = at.child(&segment.name, segment.select.as_ref());
            }
            at.whole = true;
        }
        Ok(root)
    }

    fn child(&mut self, name: &Name, select: Option<&Select>) -> &mut Mask {
        // `[*]` says the same as no brackets.
        let select = select.filter(|select| !matches!(select, Select::All | Select::Slice(None, None)));
        let found = self.picks.iter().position(|pick| pick.name == *name && pick.select.as_ref() == select);
        let at = found.unwrap_or(self.picks.len());
        if found.is_none() {
            self.picks.push(Pick { name: name.clone(), select: select.cloned(), mask: Mask::default() });
        }
        #[allow(clippy::indexing_slicing, reason = "the pick was found or has just been pushed")]
        &mut self.picks[at].mask
    }
}

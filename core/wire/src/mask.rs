//! Field masks: the parts of a message to keep, as a tree of selections.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Kind, Result, WireError};
use crate::path::{Name, Path, Select};

/// A mask of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// True to keep the whole message.
    pub whole: bool,
    /// The fields and elements to keep if `whole` is false, each with its own mask.
    pub picks: BTreeMap<Pick, Rc<Mask>>,
}

/// One field of a mask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// The field.
    pub name: Name,
    /// The elements to keep; None keeps all.
    pub select: Option<Select>,
}

impl Mask {
    /// Makes the mask that keeps the parts at `paths`.
    pub fn new(paths: &[Path]) -> Result<Self> {
        let mut root = Self::default();
        for path in paths {
            if path.segments.is_empty() {
                let message = "the parameter 'fields' has an empty path: leave it out to keep everything";
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

    /// The mask that keeps every part that at least one of `masks` keeps. `spend` is called for each examined pick.
    pub fn union(masks: &[Rc<Self>], spend: &mut dyn FnMut() -> Result<()>) -> Result<Rc<Self>> {
        if let [only] = masks {
            return Ok(Rc::clone(only));
        }
        if let Some(whole) = masks.iter().find(|mask| mask.whole) {
            return Ok(Rc::clone(whole));
        }
        let mut merged: BTreeMap<&Pick, Vec<Rc<Self>>> = BTreeMap::new();
        for (pick, mask) in masks.iter().flat_map(|mask| &mask.picks) {
            spend()?;
            merged.entry(pick).or_default().push(Rc::clone(mask));
        }
        let picks = merged.into_iter().map(|(pick, masks)| Ok((pick.clone(), Self::union(&masks, spend)?)));
        Ok(Rc::new(Self { whole: false, picks: picks.collect::<Result<_>>()? }))
    }

    fn child(&mut self, name: &Name, select: Option<&Select>) -> &mut Self {
        // Missing brackets and `[*]` have the same meaning.
        let select = select.filter(|select| !matches!(select, Select::All | Select::Slice(None, None)));
        let pick = Pick { name: name.clone(), select: select.cloned() };
        Rc::make_mut(self.picks.entry(pick).or_default())
    }
}

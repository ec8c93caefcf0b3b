//! Everything that takes foreign bytes, by name: what `core/fuzz` fuzzes.

use super::{bodies, elements, riegeli, sealed};

/// What is done to an input. It may not panic, hang, or take memory without bound.
pub type Body = fn(&[u8]);

/// All of it.
pub const TARGETS: [(&str, Body); 17] = [
    ("proto", bodies::proto),
    ("untyped", bodies::untyped),
    ("view", sealed::view),
    ("chunked", bodies::chunked),
    ("merge", sealed::merge),
    ("path", bodies::path),
    ("rope", bodies::rope),
    ("metadata", bodies::metadata),
    ("index", sealed::index),
    ("scan", sealed::scan),
    ("plan", sealed::plan),
    ("elements", elements::elements),
    ("bundle", bodies::bundle),
    ("table", sealed::table),
    ("riegeli", riegeli::exercise),
    ("chunk", sealed::chunk),
    ("options", sealed::options),
];

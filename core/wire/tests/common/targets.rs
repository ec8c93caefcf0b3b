//! Everything that takes foreign bytes, by name: what `core/fuzz` fuzzes.

use super::{bodies, descriptors, elements, riegeli, sealed, streams};

/// Fuzz target: operations on one input that may not panic, hang, or take memory without bound.
pub type Body = fn(&[u8]);

/// All of it.
pub const TARGETS: [(&str, Body); 20] = [
    ("proto", bodies::proto),
    ("untyped", bodies::untyped),
    ("view", sealed::view),
    ("chunked", bodies::chunked),
    ("merge", sealed::merge),
    ("path", bodies::path),
    ("rope", bodies::rope),
    ("metadata", bodies::metadata),
    ("descriptors", descriptors::descriptors),
    ("index", sealed::index),
    ("scan", sealed::scan),
    ("plan", sealed::plan),
    ("elements", elements::elements),
    ("bundle", bodies::bundle),
    ("table", sealed::table),
    ("riegeli", riegeli::exercise),
    ("chunk", sealed::chunk),
    ("options", sealed::options),
    ("stream", streams::stream),
    ("records", streams::saved),
];

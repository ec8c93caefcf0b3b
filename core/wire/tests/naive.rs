//! The index against a walker so plain that it is obviously right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use common::corpus;
use common::walker::check;
use proptest::prelude::*;

#[test]
fn the_corpus() {
    let all = corpus::protos();
    assert!(all.len() > 40);
    for data in &all {
        for floor in [1, 2, 40, 1000, 16 << 10] {
            check(data, floor);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn random_protos(seed in any::<u64>(), floor in 1u64..2000) {
        check(&corpus::graph(&mut common::damage::Rng::new(seed)), floor);
    }
}

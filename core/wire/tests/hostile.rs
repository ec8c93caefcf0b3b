//! Damaged and hostile bytes of every kind: no panic, no hang, and no more memory than the bytes are worth.
//!
//! `HOSTILE_CASES=100000` runs that many cases of each kind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use common::damage::{Rng, damaged};
use common::memory::{Counting, peak_of};
use common::sealed::INDEX_HEADER;
use common::targets::TARGETS;
use common::{bodies, corpus, sealed, streams, tables};
use wire::metadata::Metadata;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// No case may hold more than this at a time: windows of a source, and what a few kilobytes of proto decode to.
const MOST: usize = 24 << 20;

fn cases() -> u64 {
    std::env::var("HOSTILE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1500)
}

/// Runs `body` on damaged members of `corpus`, sound ones first.
fn hostile(corpus: &[Vec<u8>], body: impl Fn(&[u8])) {
    corpus.iter().for_each(|sound| body(sound));
    for seed in 0..cases() {
        let mut rng = Rng::new(seed);
        let (sound, other): (&Vec<u8>, &Vec<u8>) = (rng.of(corpus), rng.of(corpus));
        let case = damaged(sound, other, &mut rng);
        run(seed, || body(&case));
    }
}

/// Runs one case and says which it was when it fails.
fn run(seed: u64, case: impl FnOnce()) {
    let mut outcome = Ok(());
    let peak = peak_of(|| outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)));
    assert!(outcome.is_ok(), "case {seed} panicked");
    assert!(peak <= MOST, "case {seed} took {peak} bytes");
}

#[test]
fn protos() {
    hostile(&corpus::protos(), bodies::proto);
}

#[test]
fn protos_of_unknown_type() {
    hostile(&corpus::protos(), bodies::untyped);
}

#[test]
fn random_bytes() {
    for seed in 0..cases() {
        let mut rng = Rng::new(seed);
        let case: Vec<u8> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
        TARGETS.iter().for_each(|(_, body)| run(seed, || body(&case)));
    }
}

#[test]
fn elements() {
    for seed in 0..20 * cases() {
        let mut rng = Rng::new(seed);
        let case: Vec<u8> = (0..24 + rng.below(60)).map(|_| rng.next() as u8).collect();
        run(seed, || common::elements::elements(&case));
    }
}

#[test]
fn paths() {
    hostile(&corpus::PATHS.map(|path| path.as_bytes().to_vec()), bodies::path);
}

#[test]
fn ropes() {
    hostile(&corpus::ropes(), bodies::rope);
}

#[test]
fn streams() {
    hostile(&streams::seeds(), streams::stream);
}

#[test]
fn indexes_of_streams_with_sound_checksums() {
    hostile(&streams::saved_seeds(), streams::saved);
}

#[test]
fn bundles() {
    hostile(&corpus::tables(), bodies::bundle);
}

/// The damage is in the blocks, which are sealed as they should be.
#[test]
fn bundles_with_sound_checksums() {
    let all: Vec<_> = corpus::tables().iter().map(|data| tables::entries(data)).collect();
    for seed in 0..cases() {
        let mut rng = Rng::new(seed);
        let mut entries = rng.of(&all).clone();
        let at = rng.below(entries.len());
        let other = entries[rng.below(entries.len())].1.clone();
        if rng.below(2) == 0 {
            entries[at].1 = damaged(&entries[at].1, &other, &mut rng);
        }
        let shape = tables::Shape { block: 1 + rng.below(20), share: rng.below(2) == 0, snappy: rng.below(2) == 0 };
        let odds = 1 + rng.below(6);
        let case = tables::table(&entries, &shape, |block| {
            if rng.below(odds) == 1 {
                *block = damaged(block, &other, &mut rng);
            }
        });
        run(seed, || bodies::bundle(&case));
    }
}

#[test]
fn metadata() {
    let all: Vec<Vec<u8>> = corpus::chunked().iter().map(|file| corpus::records(file).1.encode()).collect();
    hostile(&all, bodies::metadata);
}

#[test]
fn descriptor_sets() {
    hostile(&common::descriptors::sets(), common::descriptors::descriptors);
}

#[test]
fn split_protos() {
    hostile(&corpus::split(), bodies::chunked);
}

#[test]
fn chunked_files() {
    hostile(&corpus::chunked(), bodies::chunked);
}

/// The damage is in the records, which are framed and hashed as they should be: the merge itself is put to the test.
#[test]
fn chunked_files_with_sound_frames() {
    let all: Vec<_> = corpus::chunked().iter().map(|file| corpus::records(file)).collect();
    for seed in 0..cases() {
        let mut rng = Rng::new(seed);
        let (records, metadata) = rng.of(&all);
        let (mut records, mut metadata) = (records.clone(), metadata.clone());
        if rng.below(3) == 0 {
            let at = rng.below(records.len());
            records[at] = damaged(&records[at], &metadata.encode(), &mut rng);
        }
        for (info, position) in metadata.chunks.iter_mut().zip(corpus::positions(&records)) {
            info.offset = position;
        }
        let sound = metadata.encode();
        let decoded = (0..8)
            .map(|_| damaged(&sound, &sound, &mut rng))
            .find(|bytes| Metadata::decode(bytes, &bodies::limits()).is_ok());
        records.push(decoded.unwrap_or(sound));
        let file = corpus::framed(&records);
        run(seed, || bodies::chunked(&file));
    }
}

/// The checksums of these indexes are right, so that what they say is believed as far as it can be.
#[test]
fn indexes_with_sound_checksums() {
    let all = corpus::indexes();
    for seed in 0..cases() {
        let mut rng = Rng::new(seed);
        let (sound, proto) = rng.of(&all);
        let case = checked(sound, &mut rng);
        run(seed, || bodies::index(&case, proto));
    }
}

#[test]
fn indexes() {
    let all: Vec<Vec<u8>> = corpus::indexes().into_iter().map(|(index, _)| index).collect();
    hostile(&all, |bytes| bodies::index(bytes, b""));
}

/// `index` with some bytes of its sections overwritten, or of its header, and all checksums made anew.
fn checked(index: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = index.to_vec();
    let body = sealed::index_body(index);
    for _ in 0..=rng.below(3) {
        let head = rng.below(10) == 0;
        let at = if head { 16 + rng.below(INDEX_HEADER - 16) } else { body + rng.below(out.len() - body) };
        let width = *rng.of(&[1, 1, 4, 8]);
        let value = *rng.of(&[0, 1, 127, 128, 1 << 31, u64::from(u32::MAX), 1 << 40, 1 << 63, u64::MAX]);
        for (byte, with) in out[at..].iter_mut().zip(value.to_le_bytes()).take(width) {
            *byte = with;
        }
    }
    sealed::seal_index(&mut out, body);
    assert!(head_is_odd(&out, index) || corpus::opens(&out), "the checksums are made as the index wants them");
    out
}

/// True when the header or the names of types differ from the sound index: both are read when an index is opened.
fn head_is_odd(index: &[u8], sound: &[u8]) -> bool {
    let body = sealed::index_body(sound);
    let types = u64::from_le_bytes(sound[32..40].try_into().unwrap()) as usize;
    index[..INDEX_HEADER] != sound[..INDEX_HEADER] || index[body..body + types] != sound[body..body + types]
}

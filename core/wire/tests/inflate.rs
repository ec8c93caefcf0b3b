//! Compressed streams: the same records by pieces, by points and from the plain bytes; damage keeps the records before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::sync::Mutex;

use common::Bytes;
use common::damage::Rng;
use common::streams::framed;
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use proptest::prelude::*;
use wire::inflate::{Inflated, Inflater, Points, Wrapper};
use wire::records::{Framing, Index, Reading, Scanner, index_source};
use wire::source::Source;
use wire::{Kind, Limits};

fn gzip(data: &[u8], flags: u8, optional: &[u8]) -> Vec<u8> {
    let head = [0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
    let (sum, size) = (crc32fast::hash(data).to_le_bytes(), (data.len() as u32).to_le_bytes());
    [&head[..], optional, &compress_to_vec(data, 6), &sum, &size].concat()
}

/// Records that compress to about a half, several points of them.
fn records() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(7);
    (0..4000).map(|n| (0..n % 1500).map(|_| (rng.next() % 16) as u8).collect()).collect()
}

fn files(plain: &[u8]) -> [(Framing, Vec<u8>); 4] {
    let (first, second) = plain.split_at(plain.len() / 3);
    let named = gzip(second, 4 | 8 | 16 | 2, b"\x02\0exname\0comment\0hc");
    [
        (Framing::TfRecordZlib, compress_to_vec_zlib(plain, 6)),
        (Framing::TfRecordZlib, compress_to_vec_zlib(plain, 0)),
        (Framing::TfRecordGzip, gzip(plain, 0, b"")),
        (Framing::TfRecordGzip, [gzip(first, 0, b""), named].concat()),
    ]
}

fn whole(framing: Framing, file: &[u8]) -> Index {
    index_source(framing, &Bytes(file), &Limits::default()).unwrap()
}

#[test]
fn records_come_from_any_point_in_any_order() {
    let all = records();
    let plain = framed(Framing::TfRecord, &all);
    for (framing, file) in files(&plain) {
        let index = whole(framing, &file);
        assert_eq!((index.count(), index.size(), index.fault()), (4000, plain.len() as u64, None));
        let reading = Reading::new(Index::load(&index.save()).unwrap(), Limits::default());
        for number in (0..4000).step_by(97).chain((0..4000).rev().step_by(89)) {
            let batch = reading.read(&Bytes(&file), number..number + 1, 0).unwrap();
            assert_eq!(batch.records().next().unwrap(), all[number as usize]);
        }
    }
}

/// A file whose reads are counted.
struct Counted<'a>(&'a [u8], Mutex<usize>);

impl Source for Counted<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> wire::Result<std::borrow::Cow<'_, [u8]>> {
        *self.1.lock().unwrap() += len;
        self.0.read(offset, len)
    }
}

#[test]
fn a_late_record_reads_nothing_before_its_point() {
    let plain = framed(Framing::TfRecord, &[records(), records(), records()].concat());
    let file = gzip(&plain, 0, b"");
    assert!(plain.len() > 8 << 20);
    let reading = Reading::new(whole(Framing::TfRecordGzip, &file), Limits::default());
    let counted = Counted(&file, Mutex::new(0));
    reading.read(&counted, 11_990..11_991, 0).unwrap();
    let read = *counted.1.lock().unwrap();
    assert!(read < file.len() / 4, "{read} of {} bytes were read", file.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn pieces_cut_anywhere_give_the_same_index(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let plain = framed(Framing::TfRecord, &records()[..300]);
        for (framing, file) in files(&plain) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len())).collect();
            cuts.extend([0, file.len()]);
            cuts.sort_unstable();
            let mut scanner = Scanner::new(framing, &Limits::default()).unwrap();
            cuts.windows(2).for_each(|cut| scanner.feed(&file[cut[0]..cut[1]]).unwrap());
            prop_assert_eq!(scanner.finish(file.len() as u64).unwrap(), whole(framing, &file));
        }
    }

    #[test]
    fn ranges_are_those_of_the_plain_bytes(ranges in proptest::collection::vec((any::<prop::sample::Index>(), 0..70_000usize), 1..20)) {
        let plain = framed(Framing::TfRecord, &records());
        let file = gzip(&plain, 0, b"");
        let (mut points, mut inflater, mut rest) = (Points::default(), Inflater::new(Wrapper::Gzip), &file[..]);
        while !(rest.is_empty() && inflater.is_whole()) {
            let step = inflater.step(rest, usize::MAX).unwrap();
            let (used, boundary) = (step.used, step.boundary);
            rest = &rest[used..];
            if boundary {
                points.offer(&inflater);
            }
        }
        let last = Mutex::default();
        let len = plain.len() as u64;
        let inflated = Inflated { file: &Bytes(&file), wrapper: Wrapper::Gzip, points: &points, len, last: &last };
        for (start, len) in ranges {
            let start = start.index(plain.len());
            let len = len.min(plain.len() - start);
            prop_assert_eq!(&inflated.read(start as u64, len).unwrap()[..], &plain[start..start + len]);
        }
        prop_assert!(inflated.read(len, 1).is_err());
    }

    #[test]
    fn damage_keeps_the_records_before(at in any::<prop::sample::Index>(), bit in 0..8u8, cut: bool) {
        let all = &records()[..600];
        let plain = framed(Framing::TfRecord, all);
        for (framing, file) in files(&plain) {
            let mut file = file;
            let at = at.index(file.len());
            if cut { file.truncate(at) } else { file[at] ^= 1 << bit }
            match index_source(framing, &Bytes(&file), &Limits::default()) {
                Err(error) => prop_assert_eq!(error.kind(), Kind::Limit),
                Ok(index) => {
                    prop_assert!(!cut || file.len() == at && index.fault().is_some());
                    let reading = Reading::new(Index::load(&index.save()).unwrap(), Limits::default());
                    let found: Vec<_> = (0..index.count())
                        .map(|n| reading.read(&Bytes(&file), n..n + 1, 0).map(|batch| batch.records().next().unwrap().to_vec()))
                        .collect();
                    let sound = found.iter().zip(all).all(|(found, record)| found.as_ref().is_ok_and(|found| found == record));
                    prop_assert!(index.fault().is_some() || sound && index.count() == 600, "damage that nobody tells of");
                    // A cut changes no record before.
                    prop_assert!(!cut || sound);
                }
            }
        }
    }
}

//! Streams of records: an index names the places that a plain walk finds, and hostile streams keep what is whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use common::streams::{FRAMINGS, framed as stream};
use common::{Bytes, corpus};
use proptest::prelude::*;
use wire::records::{Form, Framing, Index, MADE_OF, Reading, Scanner, chunked, index_behind, index_source};
use wire::source::{RopeSource, Source};
use wire::{Kind, Limits};

fn indexed(framing: Framing, data: &[u8]) -> Index {
    index_source(framing, &Bytes(data), &Limits::default()).unwrap()
}

/// Bytes that fail a read of those before an offset.
struct Unread<'a> {
    data: &'a [u8],
    before: u64,
}

impl Source for Unread<'_> {
    fn len(&self) -> u64 {
        self.data.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> wire::Result<std::borrow::Cow<'_, [u8]>> {
        assert!(offset >= self.before, "byte {offset} was read again");
        Bytes(self.data).read(offset, len).map(|data| data.into_owned().into())
    }
}

fn fed(framing: Framing, data: &[u8], cuts: &[usize]) -> Index {
    let mut scanner = Scanner::new(framing, &Limits::default()).unwrap();
    let mut rest = data;
    for cut in cuts.iter().cycle() {
        let (piece, left) = rest.split_at((*cut).min(rest.len()));
        scanner.feed(piece).unwrap();
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
    scanner.finish(data.len() as u64).unwrap()
}

fn given(reading: &Reading, data: &[u8], range: std::ops::Range<u64>, form: Form) -> Vec<u8> {
    let rope = reading.rope(&Bytes(data), range, form).unwrap();
    let source = Bytes(data);
    let sources: [&dyn Source; 1] = [&source];
    RopeSource::new(&rope, &sources).read(0, rope.len() as usize).unwrap().into_owned()
}

fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let record = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 0..4),
        prop::collection::vec(any::<u8>(), 120..300),
    ];
    prop::collection::vec((record, 1usize..40), 0..60)
        .prop_map(|runs| runs.into_iter().flat_map(|(record, n)| vec![record; n]).collect())
}

proptest! {
    #[test]
    fn every_record_has_its_place(
        all in records(),
        framing in prop::sample::select(&FRAMINGS),
        cuts in prop::collection::vec(1usize..400, 1..5),
        other in prop::sample::select(&FRAMINGS),
    ) {
        let data = stream(framing, &all);
        let index = indexed(framing, &data);
        prop_assert_eq!(&fed(framing, &data, &cuts), &index);
        prop_assert_eq!(&Index::load(&index.save()).unwrap(), &index);
        prop_assert_eq!((index.count(), index.end(), index.fault()), (all.len() as u64, data.len() as u64, None));
        for (number, record) in (0..).zip(&all) {
            let place = index.place(number).unwrap();
            prop_assert_eq!(&data[place.content as usize..place.content_end as usize], &record[..]);
            prop_assert_eq!(index.start(number + 1).unwrap(), place.end);
        }
        prop_assert_eq!(index.place(all.len() as u64).unwrap_err().kind(), Kind::NotFound);
        let (from, to) = (all.len() / 3, all.len());
        let reading = Reading::new(index, Limits::default());
        let bytes = given(&reading, &data, from as u64..to as u64, Form::Framed(other));
        prop_assert_eq!(bytes, stream(other, &all[from..]));
        prop_assert_eq!(given(&reading, &data, 0..to as u64, Form::Bare), all.concat());
    }

    #[test]
    fn an_index_goes_on_where_a_saved_one_ends(
        all in records(),
        framing in prop::sample::select(&FRAMINGS),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let data = stream(framing, &all);
        let mut cuts: Vec<usize> = at.iter().map(|at| at.index(data.len() + 1)).chain([data.len()]).collect();
        cuts.sort_unstable();
        let mut index = Index::empty(framing);
        for cut in cuts {
            let known = Index::load(&index.save()).unwrap();
            let read = Unread { data: &data[..cut], before: known.end() };
            index = index_behind(known, &read, &Limits::default()).unwrap();
            let anew = indexed(framing, &data[..cut]);
            prop_assert_eq!((index.count(), index.end(), index.size()), (anew.count(), anew.end(), anew.size()));
            prop_assert_eq!(index.fault(), anew.fault());
        }
        let index = Index::load(&index.save()).unwrap();
        let anew = indexed(framing, &data);
        for number in 0..all.len() as u64 {
            prop_assert_eq!(index.place(number).unwrap(), anew.place(number).unwrap());
        }
    }

    #[test]
    fn a_stream_that_is_cut_keeps_its_whole_records(
        all in records(), framing in prop::sample::select(&FRAMINGS), at in any::<prop::sample::Index>(),
    ) {
        let data = stream(framing, &all);
        let cut = at.index(data.len() + 1);
        let ends: Vec<usize> = (0..=all.len()).map(|n| stream(framing, &all[..n]).len()).collect();
        let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
        let index = indexed(framing, &data[..cut]);
        prop_assert_eq!((index.count(), index.end()), (whole as u64, ends[whole] as u64));
        let fault = index.fault().map(|fault| fault.offset);
        prop_assert_eq!(fault, (ends[whole] < cut).then_some(ends[whole] as u64));
        prop_assert_eq!(fed(framing, &data[..cut], &[7]), index);
    }

    #[test]
    fn records_are_read_in_batches(all in records(), framing in prop::sample::select(&FRAMINGS), most in 0u64..3000) {
        let data = stream(framing, &all);
        let reading = Reading::new(indexed(framing, &data), Limits::default());
        let mut read: Vec<Vec<u8>> = Vec::new();
        while read.len() < all.len() {
            let batch = reading.read(&Bytes(&data), read.len() as u64..all.len() as u64, most).unwrap();
            let before = read.len();
            read.extend(batch.records().map(<[u8]>::to_vec));
            let bytes = stream(framing, &read[before..]).len() as u64;
            prop_assert!(read.len() == before + 1 || bytes <= most);
        }
        prop_assert_eq!(read, all);
    }

    #[test]
    fn a_batch_is_as_large_as_fits(all in records(), bytes in 1u64..2000, at in any::<prop::sample::Index>()) {
        prop_assume!(!all.is_empty());
        let index = indexed(Framing::Delimited, &stream(Framing::Delimited, &all));
        let from = at.index(all.len()) as u64;
        let begin = index.start(from).unwrap();
        let fits = (from + 1..=index.count()).take_while(|to| index.start(*to).unwrap() - begin <= bytes).last();
        prop_assert_eq!(index.within(from, bytes).unwrap(), fits.unwrap_or(from + 1));
    }

    #[test]
    fn every_flipped_bit_of_a_saved_index_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut saved = indexed(Framing::U32Le, &stream(Framing::U32Le, &vec![vec![7; 9]; 900])).save();
        let at = at.index(saved.len());
        saved[at] ^= 1 << bit;
        prop_assert_eq!(Index::load(&saved).unwrap_err().kind(), Kind::Checksum);
    }
}

#[test]
fn lengths_that_need_not_be_so_long_are_taken() {
    let data = [0x81, 0x80, 0x00, b'x', 0x00, 0x82, 0x00, b'y', b'z'];
    let index = indexed(Framing::Delimited, &data);
    let ends: Vec<_> = (0..3).map(|n| index.place(n).unwrap()).map(|p| (p.content, p.content_end)).collect();
    assert_eq!(ends, [(3, 4), (5, 5), (7, 9)]);
    assert_eq!(index.fault(), None);
}

#[test]
fn lengths_that_lie_end_the_records_with_their_offset() {
    let lies: [(Framing, &[u8], &str); 5] = [
        (Framing::Delimited, &[0xff; 12], "64 bits"),
        (Framing::Delimited, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "inside a record of"),
        (Framing::U64Le, &[0xff; 9], "inside a record of 18446744073709551615"),
        (Framing::U32Be, &[0, 0, 1], "inside the length"),
        (Framing::TfRecord, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, b'x', 0, 0, 0, 0], "does not match its checksum"),
    ];
    for (framing, lie, words) in lies {
        let mut data = stream(framing, &[b"sound".to_vec()]);
        let offset = data.len() as u64;
        data.extend_from_slice(lie);
        let index = indexed(framing, &data);
        let fault = index.fault().unwrap();
        assert_eq!((index.count(), index.end(), fault.offset), (1, offset, offset), "{framing:?}");
        assert!(fault.message.contains(words), "{}", fault.message);
        assert_eq!(fed(framing, &data, &[1]), index);
    }
}

#[test]
fn a_tfrecord_that_differs_from_its_checksum_is_told_with_its_offset() {
    let mut data = stream(Framing::TfRecord, &[b"first".to_vec(), b"second".to_vec()]);
    data[35] ^= 1;
    let reading = Reading::new(indexed(Framing::TfRecord, &data), Limits::default());
    assert_eq!(reading.read(&Bytes(&data), 0..1, 100).unwrap().records().count(), 1);
    let error = reading.read(&Bytes(&data), 0..2, 100).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (Kind::Corrupt, Some(21)));
}

#[test]
fn millions_of_empty_records_take_a_few_bytes() {
    let mut scanner = Scanner::new(Framing::Delimited, &Limits::default()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..1 << 6 {
        scanner.feed(&zeros).unwrap();
    }
    let index = scanner.finish(1 << 26).unwrap();
    assert_eq!(index.count(), 1 << 26);
    assert!(index.save().len() < 100, "{}", index.save().len());
    assert_eq!(index.place((1 << 26) - 1).unwrap().end, 1 << 26);
}

#[test]
fn records_of_like_length_take_two_bytes_each() {
    let mut rng = common::damage::Rng::new(1);
    let all: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1; 4000 + rng.below(4000)]).collect();
    let saved = indexed(Framing::TfRecord, &stream(Framing::TfRecord, &all)).save();
    assert!(saved.len() <= 2 * all.len() + all.len() / 10, "{}", saved.len());
}

#[test]
fn an_index_beyond_its_limit_is_refused() {
    let all: Vec<Vec<u8>> = (0..5000).map(|n| vec![0; n % 3 * 100]).collect();
    let limits = Limits { records: 1000, ..Limits::default() };
    let data = stream(Framing::Delimited, &all);
    let error = index_source(Framing::Delimited, &Bytes(&data), &limits).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    assert!(error.message().contains("shards"), "{error}");
}

#[test]
fn files_of_chunks_are_read_by_the_crate() {
    let sizes = [0usize, 1, 300, 70_000, 65_470, 0, 2 << 20, 5];
    let all: Vec<Vec<u8>> = sizes.iter().cycle().take(40).map(|size| vec![*size as u8; *size]).collect();
    let data = stream(MADE_OF, &all);
    let whole = wire::Rope::extent(wire::SourceId(0), 0, data.len() as u64);
    let rope = chunked(&whole, &Bytes(&data), Framing::Riegeli, &Limits::default()).unwrap();
    let source = Bytes(&data);
    let sources: [&dyn Source; 1] = [&source];
    let file = RopeSource::new(&rope, &sources).read(0, rope.len() as usize).unwrap().into_owned();
    let mut reader = riegeli::RecordReader::new(std::io::Cursor::new(&file), riegeli::ReaderOptions::new()).unwrap();
    let mut read = Vec::new();
    while let Some(record) = reader.read_record().unwrap() {
        read.push(record.to_vec());
    }
    assert_eq!(read, all);
}

fn all_chunks(file: &[u8]) -> usize {
    let (mut at, mut found) = (0, 0);
    while let Ok(Some(chunk)) = wire::riegeli::chunk_at(&Bytes(file), at) {
        (at, found) = (chunk.end, found + usize::from(chunk.header.records > 0));
    }
    found
}

#[test]
fn records_of_riegeli_files_are_those_of_their_reader() {
    let files = corpus::files("golden/riegeli", ".riegeli", 200_000);
    assert!(files.len() > 5);
    for file in &files {
        let mut reader = wire::riegeli::RecordReader::new(Bytes(file), Limits::default());
        let mut all = Vec::new();
        while let Ok(Some(next)) = reader.next() {
            all.push(match next {
                wire::riegeli::Next::Held => reader.held().to_vec(),
                wire::riegeli::Next::Direct(len) => {
                    let mut into = vec![0; len as usize];
                    reader.read_direct(&mut into).unwrap();
                    into
                }
            });
        }
        let index = Index::load(&indexed(Framing::Riegeli, file).save()).unwrap();
        assert!(index.count() >= all.len() as u64);
        let (mut at, mut chunks) = (0, 0);
        while at < index.count() {
            let next = index.within(at, 1).unwrap();
            assert!(next > at && index.within(at, u64::MAX).unwrap() == index.count());
            assert!((next..=index.count()).contains(&index.within(at, 100_000).unwrap()));
            (at, chunks) = (next, chunks + 1);
        }
        assert_eq!(chunks, all_chunks(file));
        let reading = Reading::new(index, Limits::default());
        let range = 0..all.len() as u64;
        let mut read = Vec::new();
        while read.len() < all.len() {
            let batch = reading.read(&Bytes(file), read.len() as u64..range.end, 5000).unwrap();
            read.extend(batch.records().map(<[u8]>::to_vec));
        }
        assert_eq!(read, all);
        assert_eq!(given(&reading, file, range, Form::Framed(Framing::TfRecord)), stream(Framing::TfRecord, &all));
        for number in (0..all.len()).rev().step_by(7) {
            assert_eq!(given(&reading, file, number as u64..number as u64 + 1, Form::Bare), all[number]);
        }
    }
}

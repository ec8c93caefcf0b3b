//! A scan left anywhere and taken up again gives the index of one that was never left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod common;

use std::sync::Arc;

use common::corpus;
use common::damage::{Rng, damaged};
use common::schema::{ROOT, schema};
use wire::scan::Scanner;
use wire::schema::{Field, FieldKind, Message};
use wire::{Kind, Limits, Result, Schema};

/// The index when the scan is fed pieces of `step` bytes and never left.
fn fed(mut scanner: Scanner, data: &[u8], step: usize) -> Result<Vec<u8>> {
    data.chunks(step).try_for_each(|piece| scanner.feed(piece))?;
    scanner.finish(data.len() as u64)
}

/// The index when the scan is left and taken up between pieces of `step` bytes.
fn interrupted(mut scanner: Scanner, schema: &Arc<Schema>, data: &[u8], step: usize) -> Result<Vec<u8>> {
    let root = schema.type_named(ROOT);
    for piece in data.chunks(step) {
        scanner.feed(piece)?;
        let offset = scanner.offset();
        scanner = Scanner::load(&scanner.save()?, Arc::clone(schema), root, Limits::default())?;
        assert_eq!(scanner.offset(), offset);
    }
    scanner.finish(data.len() as u64)
}

#[test]
fn left_anywhere_it_goes_on() {
    let schema = Arc::new(schema());
    let begin = |floor| Scanner::new(Arc::clone(&schema), schema.type_named(ROOT), floor, Limits::default()).unwrap();
    for (number, data) in corpus::protos().iter().enumerate() {
        for floor in [1, 16, 300] {
            let expected = fed(begin(floor), data, 1 << 20).unwrap();
            let steps = if data.len() < 2000 { vec![1, 7, 50] } else { vec![211, 4096] };
            for step in steps {
                let found = interrupted(begin(floor), &schema, data, step);
                assert!(found.unwrap() == expected, "proto {number}, floor {floor}, step {step}");
            }
        }
    }
}

#[test]
fn what_fails_fails_alike_when_left() {
    let schema = Arc::new(schema());
    let begin = || Scanner::new(Arc::clone(&schema), schema.type_named(ROOT), 1, Limits::default()).unwrap();
    let all = corpus::protos();
    let mut failed = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let (sound, other): (&Vec<u8>, &Vec<u8>) = (rng.of(&all), rng.of(&all));
        let data = damaged(&sound[..sound.len().min(3000)], &other[..other.len().min(3000)], &mut rng);
        let (one, many) = (fed(begin(), &data, 13), interrupted(begin(), &schema, &data, 13));
        failed += u32::from(one.is_err());
        assert_eq!(one.map_err(|error| error.to_string()), many.map_err(|error| error.to_string()), "case {seed}");
    }
    assert!(failed > 50);
}

#[test]
fn another_schema_or_root_is_refused() {
    let schema = Arc::new(schema());
    let root = schema.type_named(ROOT);
    let saved = Scanner::new(Arc::clone(&schema), root, 1, Limits::default()).unwrap().save().unwrap();
    let field = Field { number: 1, name: "a".into(), kind: FieldKind::Bytes, repeated: false, oneof: 0, target: 0 };
    let other = Arc::new(Schema::new(vec![Message::new(ROOT.into(), false, vec![field])], vec![]).unwrap());
    let refused = Scanner::load(&saved, other, Some(0), Limits::default()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported);
    assert!(Scanner::load(&saved, Arc::clone(&schema), None, Limits::default()).is_err());
    assert!(Scanner::load(&saved, schema, root, Limits::default()).is_ok());
}

#[test]
fn damage_is_noticed_and_hostile_states_harm_nobody() {
    let schema = Arc::new(schema());
    let root = schema.type_named(ROOT);
    let load = |saved: &[u8]| Scanner::load(saved, Arc::clone(&schema), root, Limits::default());
    let data = corpus::protos().into_iter().find(|data| data.len() > 200 && data.len() < 2000).unwrap();
    let mut scanner = Scanner::new(Arc::clone(&schema), root, 1, Limits::default()).unwrap();
    scanner.feed(&data[..data.len() / 2]).unwrap();
    let saved = scanner.save().unwrap();
    for at in 0..saved.len() {
        let mut flipped = saved.clone();
        flipped[at] ^= 4;
        assert!(load(&flipped).is_err(), "byte {at}");
        assert!(load(&saved[..at]).is_err(), "cut at {at}");
    }
    let body = &saved[..saved.len() - 4];
    let mut taken = 0;
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut case = damaged(body, body, &mut rng);
        case.extend_from_slice(&wire::blocks::crc32c(&case, 0).to_le_bytes());
        // An accepted state must go on or fail without a panic.
        if let Ok(mut scanner) = load(&case) {
            taken += 1;
            let _ = scanner.feed(&data).and_then(|()| scanner.finish(data.len() as u64));
        }
    }
    assert!(taken > 10, "{taken}");
}

/// Found by fuzzing: a run of numbers that begins after its end.
#[test]
fn an_entry_that_cannot_be_is_refused() {
    let schema = Arc::new(schema());
    let root = schema.type_named(ROOT);
    let mut scanner = Scanner::new(Arc::clone(&schema), root, 1, Limits::default()).unwrap();
    scanner.feed(b"\x28\x01\x28\x01").unwrap();
    let saved = scanner.save().unwrap();
    let run = [wire::header::Wire::Varint as u8, 5, 0, 1, 4, 4, 2, 0];
    let at = saved.windows(run.len()).position(|window| window == run).unwrap();
    for (place, value, sound) in [(2, 0, true), (2, 9, false), (4, 0, false), (5, 9, false), (6, 5, false)] {
        let mut case = saved[..saved.len() - 4].to_vec();
        case[at + place] = value;
        case.extend_from_slice(&wire::blocks::crc32c(&case, 0).to_le_bytes());
        let loaded = Scanner::load(&case, Arc::clone(&schema), root, Limits::default());
        assert_eq!(loaded.is_ok(), sound, "{place} {value}");
    }
}

//! Streams of records as targets: what any bytes are taken for, and indexes whose checksum is right.

use wire::records::{Form, Framing, Index, Reading, Scanner, index_source};

use super::{Bytes, bodies};

/// Every framing that has heads.
pub const FRAMINGS: [Framing; 6] =
    [Framing::TfRecord, Framing::Delimited, Framing::U32Le, Framing::U32Be, Framing::U64Le, Framing::U64Be];

/// A stream of `records`.
pub fn framed(framing: Framing, records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        framing.put_head(record.len() as u64, &mut out);
        out.extend_from_slice(record);
        if framing == Framing::TfRecord {
            out.extend_from_slice(&wire::records::framing::masked(crc32c::crc32c(record)).to_le_bytes());
        }
    }
    out
}

/// Sound streams: the framing's number, then the records.
pub fn seeds() -> Vec<Vec<u8>> {
    let records: Vec<Vec<u8>> = (0..400u32).map(|n| vec![n as u8; (n / 7 * n % 200) as usize]).collect();
    (0..).zip(FRAMINGS).map(|(number, framing)| [&[number], framed(framing, &records).as_slice()].concat()).collect()
}

/// Saved indexes of the seeds, without their checksums.
pub fn saved_seeds() -> Vec<Vec<u8>> {
    let index = |seed: &Vec<u8>| index_source(FRAMINGS[usize::from(seed[0])], &Bytes(&seed[1..]), &bodies::limits());
    seeds().iter().map(|seed| index(seed).unwrap().save()).map(|saved| saved[..saved.len() - 4].to_vec()).collect()
}

/// A stream: one byte for its framing, then its bytes. Places are those of a plain walk, however the bytes are cut.
pub fn stream(data: &[u8]) {
    let Some((number, data)) = data.split_first() else { return };
    let framing = FRAMINGS[usize::from(*number) % FRAMINGS.len()];
    let mut scanner = Scanner::new(framing, &bodies::limits()).unwrap();
    let Ok(index) = index_source(framing, &Bytes(data), &bodies::limits()) else { return };
    data.chunks(5).for_each(|piece| scanner.feed(piece).unwrap());
    assert_eq!(scanner.finish(data.len() as u64).unwrap(), index);
    assert_eq!(Index::load(&index.save()).unwrap(), index);
    let mut end = 0;
    for number in 0..index.count() {
        let place = index.place(number).unwrap();
        assert_eq!(place.start, end);
        end = place.end;
    }
    assert_eq!(end, index.end());
    assert_eq!(index.fault().map(|fault| fault.offset), (end < data.len() as u64).then_some(end));
}

/// A saved index, but for its checksum.
pub fn saved(data: &[u8]) {
    let saved = [data, &crc32c::crc32c(data).to_le_bytes()].concat();
    let Ok(index) = Index::load(&saved) else { return };
    let (count, size) = (index.count(), index.size());
    for number in [0, 1, count / 2, count.saturating_sub(1), count] {
        let _ = index.place(number).map(|place| assert!(place.end <= size));
        let _ = index.within(number, 1 << 16);
    }
    let reading = Reading::new(index, bodies::limits());
    let _ = reading.rope(&Bytes(data), 0..count.min(1000), Form::Bare);
    let _ = reading.rope(&Bytes(data), 0..count, Form::Framed(reading.index().framing()));
}

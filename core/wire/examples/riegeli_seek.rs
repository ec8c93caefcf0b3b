//! Median of the seconds that the `riegeli` crate takes to seek and read a record: `riegeli_seek FILE NUMBER,NUMBER,…`, for
//! `python -m bench.run streams`.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::time::Instant;

use riegeli::{ReaderOptions, RecordReader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("no file")?;
    let numbers = args.next().ok_or("no numbers")?;
    let mut reader = RecordReader::new(File::open(&path)?, ReaderOptions::new())?;
    let mut places = Vec::new();
    while reader.read_record()?.is_some() {
        places.push(reader.last_pos());
    }
    let wanted = numbers.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let places = wanted.iter().map(|number| places.get(*number).copied().ok_or("no such record"));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let mut taken = Vec::new();
    for place in &places {
        let start = Instant::now();
        reader.seek(*place)?;
        black_box(reader.read_record()?);
        taken.push(start.elapsed());
    }
    taken.sort_unstable();
    println!("{}", taken.get(taken.len() / 2).ok_or("no numbers")?.as_secs_f64());
    Ok(())
}

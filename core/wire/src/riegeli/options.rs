//! The options of a writer and their text form.

use super::codec::{Codec, Compression};
use crate::error::{Kind, Result, WireError};

/// The options for writing a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterOptions {
    /// The compression of records.
    pub compression: Compression,
    /// True to transpose chunks, which divides records into columns, field by field.
    pub transpose: bool,
    /// The size of a chunk in bytes before compression; None for the default.
    pub chunk_size: Option<u64>,
    /// The largest share of a chunk that one bucket of a transposed chunk may have.
    pub bucket_fraction: f64,
    /// The alignment of the position before the first new record when an existing file is continued.
    pub initial_padding: u64,
    /// The alignment of the position after each flush and at the end.
    pub final_padding: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            compression: Compression { codec: Codec::Brotli, level: 6, window_log: None },
            transpose: false,
            chunk_size: None,
            bucket_fraction: 1.0,
            initial_padding: 1,
            final_padding: 1,
        }
    }
}

impl WriterOptions {
    /// Parses pairs of the form `option[:value]` that are separated by commas.
    pub fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once(':').map_or((option, None), |(name, value)| (name, Some(value)));
            if let Some(other) = seen.iter().find(|other| conflict(name, other)) {
                return Err(wrong(format!("{name} cannot be combined with {other}")));
            }
            seen.push(name);
            options.set(name, value)?;
        }
        options.check_window()?;
        Ok(options)
    }

    /// The size in bytes at which a chunk is closed.
    pub fn chunk_size(&self) -> u64 {
        let default = if self.compression.codec == Codec::None { 4 << 10 } else { 1 << 20 };
        // With a larger size, the number of records could exceed 56 bits, because each record counts as at least 8
        // bytes.
        self.chunk_size.unwrap_or(default).min(1 << 58)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let padding = || value.map_or(Ok(64 << 10), |value| size(name, value));
        match name {
            "default" => nothing(name, value)?,
            "transpose" => self.transpose = flag(name, value)?,
            "uncompressed" => {
                nothing(name, value)?;
                self.codec(Codec::None, 0);
            }
            "brotli" => self.codec(Codec::Brotli, level(name, value, 6, 0, 11)?),
            "zstd" => self.codec(Codec::Zstd, level(name, value, 3, -131_072, 22)?),
            "snappy" => self.codec(Codec::Snappy, level(name, value, 1, 1, 2)?),
            "window_log" => self.compression.window_log = auto(name, value, |value| number(name, value, 10, 31))?,
            "chunk_size" => self.chunk_size = auto(name, value, |value| size(name, value))?,
            "bucket_fraction" => self.bucket_fraction = fraction(name, value)?,
            "padding" => {
                self.initial_padding = padding()?;
                self.final_padding = self.initial_padding;
            }
            "initial_padding" => self.initial_padding = padding()?,
            "final_padding" => self.final_padding = padding()?,
            // This option is accepted but has no effect, because a chunk is encoded when it is complete.
            "parallelism" => drop(number::<u32>(name, needed(name, value)?, 0, u32::MAX)?),
            _ => return Err(wrong(format!("unknown option {name}"))),
        }
        Ok(())
    }

    fn codec(&mut self, codec: Codec, level: i32) {
        self.compression = Compression { codec, level, ..self.compression };
    }

    fn check_window(&self) -> Result<()> {
        let most = match self.compression.codec {
            Codec::None | Codec::Snappy => 0,
            Codec::Brotli => 30,
            Codec::Zstd => 31,
        };
        match self.compression.window_log {
            Some(window) if window > most => {
                Err(wrong(format!("window_log:{window} is not supported by {:?}", self.compression.codec)))
            }
            _ => Ok(()),
        }
    }
}

fn conflict(name: &str, other: &str) -> bool {
    let codecs = ["uncompressed", "brotli", "zstd", "snappy"];
    let paddings = |one: &str, two: &str| one == "padding" && two.ends_with("_padding");
    name == other
        || name == "default"
        || other == "default"
        || (codecs.contains(&name) && codecs.contains(&other))
        || paddings(name, other)
        || paddings(other, name)
}

fn wrong(what: String) -> WireError {
    WireError::new(Kind::Syntax, format!("invalid options of the riegeli writer: {what}"))
}

fn nothing(name: &str, value: Option<&str>) -> Result<()> {
    value.map_or(Ok(()), |value| Err(wrong(format!("{name} takes no value, but {value} was given"))))
}

fn needed<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str> {
    value.ok_or_else(|| wrong(format!("{name} needs a value")))
}

fn flag(name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(wrong(format!("{name} must be true or false, not {other}"))),
    }
}

fn level(name: &str, value: Option<&str>, default: i32, least: i32, most: i32) -> Result<i32> {
    value.map_or(Ok(default), |value| number(name, value, least, most))
}

fn number<T>(name: &str, value: &str, least: T, most: T) -> Result<T>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| wrong(format!("{name} must be a number from {least} to {most}, not {value}")))
}

fn auto<T>(name: &str, value: Option<&str>, parse: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
    let value = needed(name, value)?;
    if value == "auto" { Ok(None) } else { parse(value).map(Some) }
}

fn fraction(name: &str, value: Option<&str>) -> Result<f64> {
    number(name, needed(name, value)?, 0.0, 1.0)
}

/// Parses a positive number of bytes, which may have a fraction and a suffix, such as `64K` or `1.5M`.
fn size(name: &str, value: &str) -> Result<u64> {
    let suffixes = [('B', 0u32), ('k', 10), ('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50), ('E', 60)];
    let suffix = suffixes.iter().find(|(suffix, _)| value.ends_with(*suffix));
    let digits = value.trim_end_matches(|last| suffix.is_some_and(|(suffix, _)| *suffix == last));
    let unit = 1u64 << suffix.map_or(0, |(_, shift)| *shift);
    let whole = digits.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit));
    let bytes = whole.or_else(|| real(digits, unit)).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| wrong(format!("{name} must be a size such as 4096, 64K or 1.5M, not {value}")))
}

fn real(digits: &str, unit: u64) -> Option<u64> {
    let bytes = (digits.parse::<f64>().ok()? * unit as f64).round();
    // Whole numbers below 2^63 are exact enough here. Any other number is not a size.
    (1.0..9.2e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> WriterOptions {
        WriterOptions::parse(text).unwrap()
    }

    #[test]
    fn nothing_and_default_are_the_default() {
        assert_eq!(parse(""), WriterOptions::default());
        assert_eq!(parse("default"), WriterOptions::default());
        assert_eq!(parse("").chunk_size(), 1 << 20);
        assert_eq!(parse("uncompressed").chunk_size(), 4 << 10);
    }

    #[test]
    fn every_option_is_understood() {
        let options =
            parse("transpose,zstd:-5,window_log:20,chunk_size:1.5M,bucket_fraction:0.25,padding,parallelism:4");
        let compression = Compression { codec: Codec::Zstd, level: -5, window_log: Some(20) };
        let expected = WriterOptions {
            compression,
            transpose: true,
            chunk_size: Some(3 << 19),
            bucket_fraction: 0.25,
            initial_padding: 64 << 10,
            final_padding: 64 << 10,
        };
        assert_eq!(options, expected);
        let options = parse("snappy:2,transpose:false,initial_padding:1K,final_padding:4096B,chunk_size:auto");
        assert_eq!((options.initial_padding, options.final_padding, options.chunk_size), (1024, 4096, None));
        assert_eq!(parse("window_log:auto").compression.window_log, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            "nonsense",
            "zstd:23",
            "brotli:12",
            "brotli:x",
            "snappy:0",
            "chunk_size",
            "chunk_size:0",
            "chunk_size:-1",
            "chunk_size:1X",
            "chunk_size:16E",
            "bucket_fraction:2",
            "bucket_fraction:nan",
            "transpose:maybe",
            "uncompressed:1",
            "zstd,brotli",
            "zstd,zstd",
            "default,zstd",
            "padding,final_padding",
            "uncompressed,window_log:20",
            "brotli,window_log:31",
            "parallelism",
            "parallelism:-1",
            "default:1",
            "padding:0.2",
        ];
        for text in wrong {
            let error = WriterOptions::parse(text).expect_err(text);
            assert_eq!(error.kind(), Kind::Syntax, "{text}");
            let name = text.split([',', ':']).next().unwrap_or_default();
            let last = text.split(',').next_back().unwrap_or_default().split(':').next().unwrap_or_default();
            assert!(error.message().contains(name) || error.message().contains(last), "{text}: {error}");
        }
    }
}

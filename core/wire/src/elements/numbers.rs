//! Elements of all numeric types, decoded into 64-bit floats.

/// A decoder of the elements of one type. A complex element becomes its magnitude, and integers of 64 bits are rounded.
#[derive(Clone)]
pub(crate) enum Numbers {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    U64,
    U32,
    U16,
    C64,
    C128,
    /// Elements of one byte; the table has the number for each byte value.
    Byte(Box<[f64; 256]>),
}

/// A float of up to eight bits.
#[derive(Clone, Copy)]
struct Tiny {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

/// The bit patterns of a float type that are not finite numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// As in IEEE 754: the highest exponent means infinity or NaN.
    Ieee,
    /// All bits except the sign set means NaN; infinity does not exist.
    AllOnes,
    /// Minus zero means NaN; infinity does not exist.
    MinusZero,
    /// All patterns are finite numbers.
    Never,
}

impl Numbers {
    pub(crate) fn named(dtype: &str) -> Option<Self> {
        Some(match dtype {
            "F64" => Self::F64,
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "I64" => Self::I64,
            "I32" => Self::I32,
            "I16" => Self::I16,
            "U64" => Self::U64,
            "U32" => Self::U32,
            "U16" => Self::U16,
            "C64" => Self::C64,
            "C128" => Self::C128,
            "I8" | "I4" | "I2" | "I1" => Self::table(|byte| f64::from(byte.cast_signed())),
            "U8" | "U6" | "U4" | "U3" | "U2" | "U1" => Self::table(f64::from),
            "BOOL" => Self::table(|byte| f64::from(byte.min(1))),
            "F8_E8M0FNU" => Self::table(|byte| if byte == 255 { f64::NAN } else { 2f64.powi(i32::from(byte) - 127) }),
            _ => {
                let tiny = Tiny::named(dtype)?;
                Self::table(|byte| tiny.value(u32::from(byte)))
            }
        })
    }

    fn table(number: impl Fn(u8) -> f64) -> Self {
        Self::Byte(Box::new(std::array::from_fn(|byte| u8::try_from(byte).map_or(f64::NAN, &number))))
    }

    /// The size of an element in bytes.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Decodes the elements in `bytes` into `out`, and returns their number.
    pub(crate) fn decode(&self, bytes: &[u8], out: &mut [f64]) -> usize {
        match self {
            Self::F64 => each(bytes, out, f64::from_le_bytes),
            Self::F32 => each(bytes, out, |element| f64::from(f32::from_le_bytes(element))),
            Self::F16 => each(bytes, out, |element| f64::from(half(element))),
            Self::Bf16 => {
                each(bytes, out, |element| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(element)) << 16)))
            }
            Self::I64 => each(bytes, out, |element| i64::from_le_bytes(element) as f64),
            Self::I32 => each(bytes, out, |element| f64::from(i32::from_le_bytes(element))),
            Self::I16 => each(bytes, out, |element| f64::from(i16::from_le_bytes(element))),
            Self::U64 => each(bytes, out, |element| u64::from_le_bytes(element) as f64),
            Self::U32 => each(bytes, out, |element| f64::from(u32::from_le_bytes(element))),
            Self::U16 => each(bytes, out, |element| f64::from(u16::from_le_bytes(element))),
            Self::C64 => each(bytes, out, |element: [u8; 8]| {
                let bits = u64::from_le_bytes(element);
                let part = |bits: u64| f64::from(f32::from_bits((bits & 0xffff_ffff) as u32));
                part(bits).hypot(part(bits >> 32))
            }),
            Self::C128 => each(bytes, out, |element: [u8; 16]| {
                let bits = u128::from_le_bytes(element);
                f64::from_bits(bits as u64).hypot(f64::from_bits((bits >> 64) as u64))
            }),
            Self::Byte(table) => {
                each(bytes, out, |[byte]: [u8; 1]| table.get(usize::from(byte)).copied().unwrap_or(f64::NAN))
            }
        }
    }
}

fn each<const WIDTH: usize>(bytes: &[u8], out: &mut [f64], number: impl Fn([u8; WIDTH]) -> f64) -> usize {
    let (elements, _) = bytes.as_chunks::<WIDTH>();
    for (to, element) in out.iter_mut().zip(elements) {
        *to = number(*element);
    }
    elements.len().min(out.len())
}

/// A 16-bit float of IEEE 754 from little-endian bytes.
pub(super) fn half(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let magnitude = u32::from(bits & 0x7fff);
    // After the shift into the fields of a 32-bit float, the exponent is too low by 112. One multiplication corrects
    // it, even for subnormal numbers.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let number = if magnitude >= 0x7c00 { f32::from_bits(magnitude << 13 | 0x7f80_0000) } else { scaled };
    if bits & 0x8000 == 0 { number } else { -number }
}

impl Tiny {
    fn named(dtype: &str) -> Option<Self> {
        let (exponent, mantissa, bias, special) = match dtype {
            "F8_E3M4" => (3, 4, 3, Special::Ieee),
            "F8_E4M3" => (4, 3, 7, Special::Ieee),
            "F8_E4M3FN" => (4, 3, 7, Special::AllOnes),
            "F8_E4M3FNUZ" => (4, 3, 8, Special::MinusZero),
            "F8_E4M3B11FNUZ" => (4, 3, 11, Special::MinusZero),
            "F8_E5M2" => (5, 2, 15, Special::Ieee),
            "F8_E5M2FNUZ" => (5, 2, 16, Special::MinusZero),
            "F6_E2M3FN" => (2, 3, 1, Special::Never),
            "F6_E3M2FN" => (3, 2, 3, Special::Never),
            "F4_E2M1" => (2, 1, 1, Special::Never),
            _ => return None,
        };
        Some(Self { exponent, mantissa, bias, special })
    }

    fn value(self, bits: u32) -> f64 {
        let ones = |count: u32| (1 << count) - 1;
        let sign = bits >> (self.exponent + self.mantissa) & 1;
        let exponent = bits >> self.mantissa & ones(self.exponent);
        let mantissa = bits & ones(self.mantissa);
        let number = match self.special {
            Special::Ieee if exponent == ones(self.exponent) && mantissa == 0 => f64::INFINITY,
            Special::Ieee if exponent == ones(self.exponent) => f64::NAN,
            Special::AllOnes if exponent == ones(self.exponent) && mantissa == ones(self.mantissa) => f64::NAN,
            Special::MinusZero if sign == 1 && exponent == 0 && mantissa == 0 => f64::NAN,
            _ => {
                let whole = mantissa | u32::from(exponent > 0) << self.mantissa;
                f64::from(whole) * 2f64.powi(exponent.max(1).cast_signed() - self.bias - self.mantissa.cast_signed())
            }
        };
        if sign == 1 { -number } else { number }
    }
}

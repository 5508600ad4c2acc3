//! Element types of arrays.

/// The type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// A type of the table below, by its row.
    Known(Primitive),
    /// A type that this version does not know, by its name in text.
    Unknown(Box<str>),
}

macro_rules! primitives {
    ($($variant:ident $name:literal $bits:literal $code:literal),* $(,)?) => {
        /// The element types of XLA as of 2026-08.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each variant is named as in HLO text")]
        pub enum Primitive { $($variant),* }

        impl Primitive {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// The name in HLO text.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
            /// Bits of one element in memory when nothing packs it (`pred` is a byte; sub-byte types are packed by a layout's `E(bits)`).
            pub fn bits(self) -> u32 {
                match self { $(Self::$variant => $bits),* }
            }
            /// The number in `PrimitiveType` of `xla_data.proto`.
            pub fn code(self) -> i32 {
                match self { $(Self::$variant => $code),* }
            }
        }
    };
}

primitives! {
    Pred "pred" 8 1, S1 "s1" 1 30, S2 "s2" 2 26, S4 "s4" 4 21, S8 "s8" 8 2, S16 "s16" 16 3, S32 "s32" 32 4, S64 "s64" 64 5,
    U1 "u1" 1 31, U2 "u2" 2 27, U4 "u4" 4 22, U8 "u8" 8 6, U16 "u16" 16 7, U32 "u32" 32 8, U64 "u64" 64 9,
    F16 "f16" 16 10, BF16 "bf16" 16 16, F32 "f32" 32 11, F64 "f64" 64 12, C64 "c64" 64 15, C128 "c128" 128 18,
    F4E2M1FN "f4e2m1fn" 4 32, F6E2M3FN "f6e2m3fn" 6 36, F6E3M2FN "f6e3m2fn" 6 35, F8E3M4 "f8e3m4" 8 29, F8E4M3 "f8e4m3" 8 28,
    F8E4M3FN "f8e4m3fn" 8 20, F8E4M3B11FNUZ "f8e4m3b11fnuz" 8 23, F8E4M3FNUZ "f8e4m3fnuz" 8 25, F8E5M2 "f8e5m2" 8 19,
    F8E5M2FNUZ "f8e5m2fnuz" 8 24, F8E8M0FNU "f8e8m0fnu" 8 33,
}

impl Primitive {
    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name() == name)
    }
    /// The type of that number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.code() == code)
    }
    /// Whether it is a signed or unsigned integer (not `pred`).
    pub fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }
    /// Whether it is a signed integer.
    pub fn is_signed_integer(self) -> bool {
        matches!(self, Self::S1 | Self::S2 | Self::S4 | Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }
    /// Whether it is an unsigned integer (not `pred`).
    pub fn is_unsigned_integer(self) -> bool {
        matches!(self, Self::U1 | Self::U2 | Self::U4 | Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }
    /// Whether it is complex.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128)
    }
    /// Whether it is a real floating-point type.
    pub fn is_float(self) -> bool {
        !self.is_integer() && !self.is_complex() && self != Self::Pred
    }
    /// Bytes that one element takes in a [`super::Literal`]: sub-byte types take one each.
    pub fn literal_bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }
}

impl ElementType {
    /// The name in HLO text.
    pub fn name(&self) -> &str {
        match self {
            Self::Known(p) => p.name(),
            Self::Unknown(name) => name,
        }
    }
    /// The known type, if it is one.
    pub fn known(&self) -> Option<Primitive> {
        match self {
            Self::Known(p) => Some(*p),
            Self::Unknown(_) => None,
        }
    }
}

impl From<Primitive> for ElementType {
    fn from(p: Primitive) -> Self {
        Self::Known(p)
    }
}

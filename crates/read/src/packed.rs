//! Long lists of numbers in serialised data: as a list, or as bytes, 8 for each number, which
//! Python makes from arrays.

use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};

/// A number of 8 bytes.
pub(crate) trait Number: Sized {
    /// The number with these little-endian bytes; `None` if the type cannot hold it.
    fn of(bytes: [u8; 8]) -> Option<Self>;
}

impl Number for usize {
    fn of(bytes: [u8; 8]) -> Option<Self> {
        i64::from_le_bytes(bytes).try_into().ok()
    }
}

impl Number for i64 {
    fn of(bytes: [u8; 8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes))
    }
}

impl Number for f64 {
    fn of(bytes: [u8; 8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes))
    }
}

struct Numbers<T>(PhantomData<T>);

impl<'de, T: Number + serde::Deserialize<'de>> Visitor<'de> for Numbers<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of numbers, or their bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        let (numbers, remainder) = bytes.as_chunks::<8>();
        let numbers = numbers.iter().map(|bytes| T::of(*bytes)).collect::<Option<Vec<T>>>();
        numbers.filter(|_| remainder.is_empty()).ok_or_else(|| E::custom("bytes of other numbers"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut numbers = Vec::with_capacity(list.size_hint().unwrap_or(0).min(1 << 20));
        while let Some(number) = list.next_element()? {
            numbers.push(number);
        }
        Ok(numbers)
    }
}

pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Number + serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    from.deserialize_any(Numbers(PhantomData))
}

/// The same for lists that may be missing.
pub(crate) mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Number;

    pub fn serialize<T: Serialize, S: Serializer>(
        numbers: &Option<Vec<T>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        numbers.serialize(to)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<Vec<T>>, D::Error>
    where
        T: Number + Deserialize<'de>,
        D: Deserializer<'de>,
    {
        struct List<T>(Vec<T>);

        impl<'de, T: Number + Deserialize<'de>> Deserialize<'de> for List<T> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                super::deserialize(from).map(List)
            }
        }

        Ok(Option::<List<T>>::deserialize(from)?.map(|list| list.0))
    }
}

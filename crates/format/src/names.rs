//! Names of option values. Each value has one name, which is the same on the command line, in
//! Python, in files and in reports.

use crate::{Error, Result};

/// Names the values of an option: defines `ALL`, `name`, `Display` and `FromStr`.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Side { Left, Right }
/// hsipack_format::option_names!(Side, "side", { Left => "left", Right => "right" });
///
/// assert_eq!("right".parse::<Side>()?, Side::Right);
/// assert_eq!(Side::ALL.map(Side::name), ["left", "right"]);
/// let error = "up".parse::<Side>().unwrap_err().to_string();
/// assert_eq!(error, "there is no side \"up\" (give one of left, right)");
/// # Ok::<(), hsipack_format::Error>(())
/// ```
#[macro_export]
macro_rules! option_names {
    ($type:ident, $what:literal, { $($value:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every value.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name that the command line, Python, files and reports use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(name: &str) -> $crate::Result<Self> {
                $crate::names::value($what, name, &Self::ALL, Self::name)
            }
        }
    };
}

/// The value with this name.
///
/// # Errors
/// If none of `values` has this name; the remedy lists the valid names.
pub fn value<T: Copy>(
    what: &str,
    name: &str,
    values: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T> {
    values.iter().copied().find(|value| name_of(*value) == name).ok_or_else(|| {
        let names: Vec<&str> = values.iter().copied().map(name_of).collect();
        Error::conflict(format!("there is no {what} {name:?}"))
            .with_remedy(format!("give one of {}", names.join(", ")))
    })
}

/// The error of `serde` for text that is no value of an option; the remedy of `error` says what the
/// option takes.
pub fn refused<E: serde::de::Error>(text: &str, error: &Error) -> E {
    let remedy = error.remedy().map(ToString::to_string).unwrap_or_default();
    let takes = remedy.strip_prefix("give ").unwrap_or(&remedy);
    E::invalid_value(serde::de::Unexpected::Str(text), &takes)
}

/// Values with a name in serialised data, where a field has
/// `#[serde(with = "hsipack_format::names::by_name")]`.
pub mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the name.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    /// The value with this name.
    ///
    /// # Errors
    /// If it is not text, or no value has this name.
    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = crate::Error>,
        D: Deserializer<'de>,
    {
        let name = String::deserialize(from)?;
        name.parse().map_err(|error| super::refused(&name, &error))
    }
}

//! Names of option values. Each value has one name, which is the same on the command line, in Python, in files and
//! in reports.

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

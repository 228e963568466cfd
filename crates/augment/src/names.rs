//! Names of options, as users write them.

/// Gives an enum the list `ALL`, the names of its values (those of JSON), and both ways between value and name.
macro_rules! names {
    ($type:ident, $what:literal, {$($value:ident: $name:literal),+ $(,)?}) => {
        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = hsipack_format::Error;

            fn from_str(name: &str) -> hsipack_format::Result<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name).ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|value| value.name()).collect();
                    hsipack_format::Error::conflict(format!("there is no {} {name:?}", $what))
                        .with_remedy(format!("give one of {}", names.join(", ")))
                })
            }
        }
    };
}

pub(crate) use names;

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};
    use std::str::FromStr;

    use serde::Serialize;

    use crate::{Count, Direction, Interpolation, KorniaCompat, Padding};

    fn check<T: FromStr<Err = hsipack_format::Error> + Display + Debug + PartialEq + Serialize>(
        all: &[T],
    ) {
        for value in all {
            let name = value.to_string();
            assert_eq!(name.parse::<T>().unwrap(), *value);
            assert_eq!(serde_json::to_value(value).unwrap(), name);
        }
        let error = "nothing".parse::<T>().unwrap_err();
        assert!(error.remedy().unwrap().to_string().contains(&all[0].to_string()), "{error}");
    }

    #[test]
    fn every_option_has_the_name_that_json_has() {
        check(Interpolation::ALL);
        check(Padding::ALL);
        check(KorniaCompat::ALL);
        check(Direction::ALL);
        check(Count::ALL);
    }
}

//! Errors as plain data, with everything that the user is shown.

use hsipack_format::remedy::Remedy;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// An [`Error`] without its cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    kind: ErrorKind,
    path: Option<String>,
    what: String,
    choices: Vec<String>,
    remedy: Option<Remedy>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            path: error.path().map(|path| path.to_string_lossy().into_owned()),
            what: error.what().to_owned(),
            choices: error.choices().to_vec(),
            remedy: error.remedy().cloned(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let Failure { kind, path, what, choices, remedy } = failure;
        let mut error = Error::new(kind, what).with_choices(choices);
        if let Some(path) = path {
            error = error.at(path);
        }
        match remedy {
            Some(remedy) => error.with_remedy(remedy),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::{Command, Opt, remedy};

    use super::*;

    #[test]
    fn errors_arrive_with_all_their_parts() {
        let parts = remedy![
            "pass ",
            Opt::Device.to("cpu"),
            ", or run ",
            Command::Bench.with(Opt::Strategies),
            String::from("!")
        ];
        let error = Error::ambiguous("several cubes")
            .at("d/a.h5")
            .with_choices(vec!["x".into(), "y".into()])
            .with_remedy(parts);
        let json = serde_json::to_string(&Failure::from(&error)).unwrap();
        let failure: Failure = serde_json::from_str(&json).unwrap();
        let arrived = Error::from(failure);
        assert_eq!((arrived.to_string(), arrived.kind()), (error.to_string(), error.kind()));
        assert_eq!(arrived.remedy(), error.remedy());
        let bare = Error::device("it failed");
        assert_eq!(Error::from(Failure::from(&bare)).to_string(), "it failed");
    }
}

//! Decides which requests are accepted.
//!
//! The server listens only on this machine, but every page in a browser can send requests to it.
//! Therefore an address must begin with a token that only the user's browser knows. Requests must
//! also name this server as their host, because somebody else's host name can be made to lead here,
//! and as their origin, if they have one.

use std::fmt::Write;

use hsipack_format::{Error, Result};

/// The token and the host names that a request must have.
#[derive(Clone, Debug)]
pub struct Auth {
    token: String,
    hosts: [String; 2],
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The address begins with no token, or with a wrong one.
    Token,
    /// The request is for another host, or from another page.
    Stranger,
}

impl Auth {
    /// With a new token, for a server at `port` of this machine.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(port: u16) -> Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            Error::unsupported(format!("the system has no random numbers: {error}"))
        })?;
        let mut token = String::new();
        for byte in random {
            let _ = write!(token, "{byte:02x}");
        }
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
        Ok(Self { token, hosts })
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.hosts[0], self.token)
    }

    /// The part of `path` after the token. `host` and `origin` are those of the request.
    ///
    /// # Errors
    /// If the request is refused.
    pub fn authorize<'p>(
        &self,
        path: &'p str,
        host: Option<&str>,
        origin: Option<&str>,
    ) -> std::result::Result<&'p str, Refused> {
        let is_here = |name: &str| self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
        let from_here = |origin: &str| origin.strip_prefix("http://").is_some_and(is_here);
        if !host.is_some_and(is_here) || !origin.is_none_or(from_here) {
            return Err(Refused::Stranger);
        }
        let (token, target) = path.trim_start_matches('/').split_once('/').ok_or(Refused::Token)?;
        // The time that this takes must not reveal how much of the token is right.
        let differences =
            token.bytes().zip(self.token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differences != 0 || token.len() != self.token.len() {
            return Err(Refused::Token);
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_itself_is_let_in() {
        let auth = Auth::new(80).unwrap();
        let path = format!("/{}/api/about", auth.token);
        let here = Some("127.0.0.1:80");
        assert_eq!(auth.authorize(&path, here, None), Ok("api/about"));
        assert_eq!(
            auth.authorize(&path, Some("LOCALHOST:80"), Some("http://localhost:80")),
            Ok("api/about")
        );
        for (host, origin) in [
            (None, None),
            (Some("127.0.0.1"), None),
            (Some("127.0.0.1:81"), None),
            (Some("evil.example:80"), None),
            (here, Some("http://evil.example")),
            (here, Some("null")),
            (here, Some("https://127.0.0.1:80")),
        ] {
            assert_eq!(
                auth.authorize(&path, host, origin),
                Err(Refused::Stranger),
                "{host:?} {origin:?}"
            );
        }
        let almost = format!("/{}x/", &auth.token[..31]);
        for path in ["/", "/api/about", "//", almost.as_str(), &path[..20], &path[1..33]] {
            assert_eq!(auth.authorize(path, here, None), Err(Refused::Token), "{path}");
        }
    }

    #[test]
    fn tokens_are_new() {
        let [token, other] = [0, 0].map(|_| Auth::new(1).unwrap().token);
        assert!(token != other && token.len() == 32);
    }
}

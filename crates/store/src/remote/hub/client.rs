//! Clients of the Hub, and the token of the user.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, Result};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, HeaderMap, HeaderValue, ObjectStore};

use super::repository::{ENDPOINT, Repository};
use crate::regular_file;
use crate::remote::client::{self, Client};
use crate::remote::options::{StorageOptions, variable};

/// The most bytes of a file with a token.
const MAX_TOKEN: u64 = 4 << 10;

/// The client for the files of a repository.
///
/// # Errors
/// If the endpoint, the token or another option is not valid.
pub(in crate::remote) fn client(
    repository: &Repository,
    options: &StorageOptions,
) -> Result<Client> {
    let revision = repository.encoded_revision();
    let path = format!("datasets/{}/resolve/{revision}", repository.name);
    Ok(Client { objects: web(&path, options)?, parts: None })
}

/// A client of the Hub for addresses below `path`.
pub(super) fn web(path: &str, options: &StorageOptions) -> Result<Arc<dyn ObjectStore>> {
    let option = |name: &str| options.0.get(name).map(|value| value.trim().to_owned());
    let endpoint = option("endpoint").or_else(|| variable("HF_ENDPOINT"));
    let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = checked_endpoint(&endpoint)?;
    let mut settings = ClientOptions::new().with_allow_http(endpoint.starts_with("http://"));
    let of_hub = ["endpoint", "token", "anon"];
    let of_client = options.0.iter().filter(|(name, _)| !of_hub.contains(&name.as_str()));
    let of_client = of_client.map(|(name, value)| (name.clone(), value.trim().to_owned()));
    for (name, value) in client::defaults().chain(of_client) {
        let key = name.parse::<ClientConfigKey>().map_err(|_| unknown(&name))?;
        settings = settings.with_config(key, value);
    }
    let is_anonymous = option("anon").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let token = if is_anonymous { None } else { option("token").or_else(|| token(variable)) };
    if let Some(token) = token {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            Error::malformed("the token of the Hub contains characters that no token has")
                .with_remedy("set HF_TOKEN again, or log in with `hf auth login`")
        })?;
        header.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header);
        settings = settings.with_default_headers(headers);
    }
    client::prepare_tls();
    let builder = HttpBuilder::new()
        .with_url(format!("{endpoint}/{path}"))
        .with_client_options(settings)
        .with_retry(client::retry());
    match builder.build() {
        Ok(client) => Ok(Arc::new(client)),
        // The library's message may contain values.
        Err(_) => Err(Error::malformed("no connection to the Hub can be made with these options")
            .with_remedy("check the values of storage_options and HF_ENDPOINT")),
    }
}

/// The address of the Hub without a slash at the end.
fn checked_endpoint(endpoint: &str) -> Result<String> {
    let is_http = |url: &reqwest::Url| {
        ["http", "https"].contains(&url.scheme())
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    };
    match reqwest::Url::parse(endpoint) {
        Ok(url) if is_http(&url) => Ok(endpoint.trim_end_matches('/').to_owned()),
        // It is not shown, because it may contain a password.
        _ => Err(Error::malformed("the endpoint of the Hub is not an address").with_remedy(
            "set HF_ENDPOINT, or endpoint in storage_options, to an address such as https://huggingface.co",
        )),
    }
}

fn unknown(name: &str) -> Error {
    Error::unsupported(format!("no storage option of the Hub is named {name}"))
        .with_remedy("use token, endpoint, anon or timeout")
}

/// The token of the user, where the Hub's own tools look for it: `HF_TOKEN`, otherwise the file
/// that `hf auth login` writes.
fn token(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(token) = variable("HF_TOKEN") {
        return Some(token);
    }
    let below_home =
        |home: &str, folder: &str| variable(home).map(|home| Path::new(&home).join(folder));
    let file = variable("HF_TOKEN_PATH")
        .map(PathBuf::from)
        .or_else(|| below_home("HF_HOME", "token"))
        .or_else(|| below_home("XDG_CACHE_HOME", "huggingface/token"))
        .or_else(|| below_home("HOME", ".cache/huggingface/token"))?;
    let (file, _) = regular_file::open(&file, OpenOptions::new().read(true), 0).ok()?;
    let mut text = String::new();
    file.take(MAX_TOKEN).read_to_string(&mut text).ok()?;
    let token = text.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_the_tools_of_the_hub_keep_it() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let text = home.path().to_str().unwrap().to_owned();
        let set = |names: &'static [&str]| {
            let text = text.clone();
            move |name: &str| match name {
                "HF_TOKEN" if names.contains(&name) => Some("direct".to_owned()),
                _ if names.contains(&name) => Some(text.clone()),
                _ => None,
            }
        };
        assert_eq!(token(set(&["HOME"])), None);
        file(".cache/huggingface/token", "of home\n");
        file("huggingface/token", "of the cache");
        file("token", " of hf ");
        assert_eq!(token(set(&["HOME"])).as_deref(), Some("of home"));
        assert_eq!(token(set(&["HOME", "XDG_CACHE_HOME"])).as_deref(), Some("of the cache"));
        assert_eq!(token(set(&["HOME", "HF_HOME"])).as_deref(), Some("of hf"));
        assert_eq!(token(set(&["HOME", "HF_HOME", "HF_TOKEN"])).as_deref(), Some("direct"));
        assert_eq!(token(set(&[])), None);
    }

    #[test]
    fn endpoints_with_secrets_are_refused_and_not_repeated() {
        assert_eq!(
            checked_endpoint("https://hub.example.org/").unwrap(),
            "https://hub.example.org"
        );
        for endpoint in ["hub.example.org", "ftp://h", "https://me:hunter2@h"] {
            let error = checked_endpoint(endpoint).unwrap_err().to_string();
            assert!(error.contains("HF_ENDPOINT") && !error.contains("hunter2"), "{error}");
        }
    }
}

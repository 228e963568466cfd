//! Datasets on the Hugging Face Hub: `hf://datasets/OWNER/NAME[@REVISION]/PATH`.
//!
//! The Hub is a web server: files are at `/datasets/OWNER/NAME/resolve/REVISION/PATH`, and large ones redirect to another
//! server. The token goes to the Hub alone: the HTTP client drops it when a redirect leads to another host or port.
//!
//! A branch moves when its owner pushes. So opening a dataset asks for the commit of its revision once ([`pinned`]), and
//! everything later, also in other processes that get the dataset's path, reads that commit.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, ErrorKind, Result};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{
    ClientConfigKey, ClientOptions, GetOptions, HeaderMap, HeaderValue, ObjectStore,
};
use serde::Deserialize;

use super::failure::Failure;
use super::network::{self, Client};
use super::options::{self, StorageOptions, variable};
use super::url::{Address, Scheme};
use crate::bounded_read;

/// The Hub, unless `HF_ENDPOINT` names another one.
const ENDPOINT: &str = "https://huggingface.co";
/// The revision if a URL names none.
const MAIN: &str = "main";
/// The most bytes of what the Hub says about a repository: it lists all files.
const MAX_ABOUT: u64 = 64 << 20;
/// The most bytes of a file with a token.
const MAX_TOKEN: u64 = 4 << 10;
/// Remedy if the Hub refuses to say anything, or to send a file.
const TOKEN: &str = "set HF_TOKEN to a token that may read the dataset, or log in with `hf auth login`; \
                     if the dataset is gated, accept its conditions on its page";

/// A repository of a dataset and a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// `OWNER/NAME`.
    pub(super) name: String,
    /// Branch, tag or commit.
    pub(super) revision: String,
}

impl Repository {
    /// The repository in the authority of a URL, `datasets/OWNER/NAME[@REVISION]`.
    pub(super) fn of_authority(authority: &str) -> Option<Self> {
        let (owner, name) = authority.strip_prefix("datasets/")?.split_once('/')?;
        let (name, revision) = match name.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (name, None),
        };
        let is_name = |text: &str| {
            let part =
                |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
            !text.is_empty() && text.chars().all(part) && !text.starts_with('.')
        };
        // A branch such as refs/pr/1 has its slashes as %2F, as in addresses of the Hub.
        let revision = revision.unwrap_or(MAIN).replace("%2F", "/").replace("%2f", "/");
        let is_revision =
            !revision.is_empty() && revision.split('/').all(is_name) && !revision.contains("..");
        (is_name(owner) && is_name(name) && is_revision)
            .then(|| Self { name: format!("{owner}/{name}"), revision })
    }

    /// Whether the revision is a commit, which never changes.
    fn is_commit(&self) -> bool {
        self.revision.len() == 40 && self.revision.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// The revision in an address.
    fn encoded_revision(&self) -> String {
        self.revision.replace('/', "%2F")
    }

    /// The page of the dataset.
    fn page(&self) -> String {
        format!("{ENDPOINT}/datasets/{}", self.name)
    }
}

/// The client for the files of a repository.
///
/// # Errors
/// If the endpoint, the token or another option is not valid.
pub(super) fn client(repository: &Repository, options: &StorageOptions) -> Result<Client> {
    let revision = repository.encoded_revision();
    let path = format!("datasets/{}/resolve/{revision}", repository.name);
    Ok(Client { objects: web(&path, options)?, parts: None })
}

/// A client of the Hub for addresses below `path`.
fn web(path: &str, options: &StorageOptions) -> Result<Arc<dyn ObjectStore>> {
    let option = |name: &str| options.0.get(name).map(|value| value.trim().to_owned());
    let endpoint = option("endpoint").or_else(|| variable("HF_ENDPOINT"));
    let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = checked_endpoint(&endpoint)?;
    let mut settings = ClientOptions::new().with_allow_http(endpoint.starts_with("http://"));
    let of_hub = ["endpoint", "token", "anon"];
    let of_client = options.0.iter().filter(|(name, _)| !of_hub.contains(&name.as_str()));
    let of_client = of_client.map(|(name, value)| (name.clone(), value.trim().to_owned()));
    for (name, value) in network::defaults().chain(of_client) {
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
    network::prepare_tls();
    let builder = HttpBuilder::new()
        .with_url(format!("{endpoint}/{path}"))
        .with_client_options(settings)
        .with_retry(network::retry());
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

/// The token of the user, where the Hub's own tools look for it: `HF_TOKEN`, otherwise the file that `hf auth login` writes.
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
    let text = bounded_read::read(&file, MAX_TOKEN).ok()?;
    let token = String::from_utf8(text).ok()?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

/// The URL with the commit of its revision, as it is now. Other URLs, paths, and URLs with a commit are returned unchanged.
///
/// # Errors
/// If there is no such dataset or revision, or the Hub refuses or does not answer.
pub fn pinned(url: &Path) -> Result<Cow<'_, Path>> {
    let is_of_hub =
        |text: &&str| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("hf://"));
    let Some(text) = url.to_str().filter(is_of_hub) else { return Ok(Cow::Borrowed(url)) };
    // Refused here, before the names of files are added to the URL.
    let address = Address::of(url)?;
    let Some(repository) = Repository::of_authority(&address.authority) else {
        return Ok(Cow::Borrowed(url));
    };
    if repository.is_commit() {
        return Ok(Cow::Borrowed(url));
    }
    let commit = network::wait(commit(&repository, &options::of(&address.account())))
        .map_err(|error| if error.path().is_some() { error } else { error.at(url) })?;
    let (_, after) = text.split_once("://").expect("a URL");
    let path = &after[address.authority.len()..];
    Ok(Cow::Owned(format!("hf://datasets/{}@{commit}{path}", repository.name).into()))
}

/// The Hub's answer about a revision.
#[derive(Deserialize)]
struct About {
    sha: String,
}

/// The commit of a revision.
async fn commit(repository: &Repository, options: &StorageOptions) -> Result<String> {
    let revision = repository.encoded_revision();
    let path = format!("api/datasets/{}/revision/{revision}", repository.name);
    let client = web(&path, options)?;
    let failed = |failure: &Failure| failed_to_pin(failure, repository);
    let got = client.get_opts(&Key::default(), GetOptions::default()).await;
    let got = got.map_err(|error| failed(&Failure::from_library(&error)))?;
    if got.meta.size > MAX_ABOUT {
        return Err(failed(&Failure::Cut));
    }
    let bytes = got.bytes().await.map_err(|error| failed(&Failure::from_library(&error)))?;
    let about: Option<About> = serde_json::from_slice(&bytes).ok();
    let commit = about.map(|about| Repository { revision: about.sha, ..repository.clone() });
    match commit.filter(Repository::is_commit) {
        Some(commit) => Ok(commit.revision),
        None => Err(Error::new(
            ErrorKind::Io,
            "the Hub's answer does not name the commit of the revision",
        )
        .with_remedy("check HF_ENDPOINT and the network; try again")),
    }
}

/// The error if a revision's commit cannot be found out.
fn failed_to_pin(failure: &Failure, Repository { name, revision }: &Repository) -> Error {
    let io = |what: String| Error::new(ErrorKind::Io, what);
    match failure {
        Failure::Missing | Failure::NoBucket => io(format!(
            "the Hub has no dataset {name} with the revision {revision}"
        ))
        .with_remedy("check owner, name and revision in hf://datasets/OWNER/NAME@REVISION/PATH"),
        Failure::Denied(status) => io(format!(
            "the Hub refuses ({status}): the dataset {name} does not exist, is private, or is gated"
        ))
        .with_remedy(format!("check its name; {TOKEN}")),
        Failure::Away(reason) => io(format!("the Hub is not available ({reason})"))
            .with_remedy("check the network and HF_ENDPOINT; try again"),
        other => {
            let error = other.of(Path::new(""));
            let error = io(error.what().to_owned());
            error.with_remedy("check the network and HF_ENDPOINT; try again")
        }
    }
}

/// The error of a request for a file of the Hub, if it needs other words than those of other servers.
pub(super) fn error_of(failure: &Failure, doing: &str, url: &Path) -> Option<Error> {
    let authority = Address::of(url).ok().filter(|address| address.scheme == Scheme::Hf)?.authority;
    let repository = Repository::of_authority(&authority)?;
    match failure {
        Failure::Missing => {
            let source =
                std::io::Error::new(std::io::ErrorKind::NotFound, "the Hub has no such file");
            Some(Error::io(url, doing, source).with_remedy(format!(
                "check the path and the revision; {}/tree/{} lists the files",
                repository.page(),
                repository.encoded_revision()
            )))
        }
        Failure::Denied(status) => Some(
            Error::new(ErrorKind::Io, format!("{doing}: the Hub refuses ({status})"))
                .at(url)
                .with_remedy(format!("{TOKEN}, {}", repository.page())),
        ),
        _ => None,
    }
}

/// Whether a path is a URL of the Hub.
pub(super) fn is_hub(path: &Path) -> bool {
    Address::of(path).is_ok_and(|address| address.scheme == Scheme::Hf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_an_owner_a_name_and_a_revision() {
        let of = |text: &str| {
            Repository::of_authority(text).map(|repository| (repository.name, repository.revision))
        };
        let pair = |name: &str, revision: &str| Some((name.to_owned(), revision.to_owned()));
        assert_eq!(of("datasets/ada/leaves"), pair("ada/leaves", "main"));
        assert_eq!(of("datasets/ada/leaves.v2@v1.0"), pair("ada/leaves.v2", "v1.0"));
        assert_eq!(of("datasets/ada/leaves@refs%2Fpr%2F1"), pair("ada/leaves", "refs/pr/1"));
        for wrong in [
            "models/ada/leaves",
            "datasets/ada",
            "datasets//leaves",
            "datasets/ada/leaves@",
            "datasets/ada/leaves@a@b",
            "datasets/ada/..",
            "datasets/ada/leaves@..%2F..",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn paths_and_commits_need_no_request() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for same in ["/a/b", "s3://b/c", &format!("hf://datasets/ada/leaves@{commit}/l.hsipack")] {
            assert_eq!(pinned(Path::new(same)).unwrap(), Path::new(same));
        }
        for wrong in ["hf://datasets/ada", "hf://datasets", "hf://models/ada/leaves/x"] {
            assert!(pinned(Path::new(wrong)).is_err(), "{wrong}");
        }
    }

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

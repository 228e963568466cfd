//! Datasets on the Hugging Face Hub: `hf://datasets/OWNER/NAME[@REVISION]/PATH`.
//!
//! The Hub is a web server: files are at `/datasets/OWNER/NAME/resolve/REVISION/PATH`, and large
//! ones redirect to another server. The token goes to the Hub alone: the HTTP client drops it when
//! a redirect leads to another host or port.
//!
//! A branch moves when its owner pushes. So opening a dataset asks for the commit of its revision
//! once ([`pinned`]), and everything later, also in other processes that get the dataset's path,
//! reads that commit.

pub(super) mod client;
pub(super) mod repository;

use std::borrow::Cow;
use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};
use object_store::GetOptions;
use object_store::path::Path as Key;
use serde::Deserialize;

use self::client::web;
use self::repository::{Repository, TOKEN};
use super::failure::Failure;
use super::network;
use super::options::{self, StorageOptions};
use super::url::Address;

/// The most bytes of what the Hub says about a repository: it lists all files.
const MAX_ABOUT: u64 = 64 << 20;
/// The URL with the commit of its revision, as it is now. Other URLs, paths, and URLs with a commit
/// are returned unchanged.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

//! Repositories of datasets on the Hub, as URLs name them.

/// The Hub, unless `HF_ENDPOINT` names another one.
pub(super) const ENDPOINT: &str = "https://huggingface.co";
/// The revision if a URL names none.
const MAIN: &str = "main";
/// Remedy if the Hub refuses to say anything, or to send a file.
pub(in crate::remote) const TOKEN: &str = "set HF_TOKEN to a token that may read the dataset, or log in with `hf auth login`; \
                     if the dataset is gated, accept its conditions on its page";

/// A repository of a dataset and a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::remote) struct Repository {
    /// `OWNER/NAME`.
    pub(in crate::remote) name: String,
    /// Branch, tag or commit.
    pub(in crate::remote) revision: String,
}

impl Repository {
    /// The repository in the authority of a URL, `datasets/OWNER/NAME[@REVISION]`.
    pub(in crate::remote) fn of_authority(authority: &str) -> Option<Self> {
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
    pub(super) fn is_commit(&self) -> bool {
        self.revision.len() == 40 && self.revision.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// The revision in an address.
    pub(in crate::remote) fn encoded_revision(&self) -> String {
        self.revision.replace('/', "%2F")
    }

    /// The page of the dataset.
    pub(in crate::remote) fn page(&self) -> String {
        format!("{ENDPOINT}/datasets/{}", self.name)
    }
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
}

//! Looking up credentials: whether this machine may have some, and errors that say that the look-up
//! failed.
//!
//! If a user sets no credentials, the clients ask the metadata service of the cloud's machines, at
//! an address that exists only there. Elsewhere, such as behind a proxy, anything may answer: its
//! refusal must not look like one of the bucket, and waiting for it takes seconds. So the service
//! is asked only if something says that this is a machine of the cloud ([`has_metadata_service`]),
//! or if the user configured it.

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use object_store::CredentialProvider;

use super::cloud::Cloud;
use super::failure::{Failure, LookupFailed};

/// Whether this machine probably has a metadata service of the cloud, or the user configured one.
/// `options` are names of options, `variable` reads the environment, and the system's files are
/// below `root`.
pub(super) fn has_metadata_service<'a>(
    cloud: Cloud,
    mut options: impl Iterator<Item = &'a str>,
    variable: impl Fn(&str) -> Option<String>,
    root: &Path,
) -> bool {
    let is_disabled = || variable("AWS_EC2_METADATA_DISABLED")?.to_lowercase().parse().ok();
    if cloud == Cloud::Aws && is_disabled() == Some(true) {
        return false;
    }
    let (names, variables) = cloud.settings();
    let is_setting = |option: &str| {
        let name = option.to_ascii_lowercase();
        let prefixes = ["aws_", "azure_"];
        names.contains(
            &prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name),
        )
    };
    let says = |(file, text): &(&str, &str)| {
        std::fs::read_to_string(root.join(file)).is_ok_and(|content| {
            let content = content.trim().to_lowercase();
            content.starts_with(text) || content.ends_with(text)
        })
    };
    options.any(is_setting)
        || variables.iter().any(|name| variable(name).is_some())
        || cloud.signs().iter().any(says)
}

/// Where a client looks credentials up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The metadata service of the machine.
    Machine,
    /// The service for tokens of a role, for the token in a file.
    TokenFile,
    /// The credentials service of a container.
    Container,
    /// Another service of the cloud.
    Service,
}

impl Source {
    /// The source that a client chose; `None` if it needs no look-up. The library does not say it
    /// in another way. If a later version has other names, the errors are less precise.
    fn of(provider: &impl Debug) -> Option<Self> {
        let text = format!("{provider:?}");
        let has = |names: &[&str]| names.iter().any(|name| text.contains(name));
        if has(&["StaticCredentialProvider"]) {
            None
        } else if has(&["InstanceCredentialProvider", "ImdsManagedIdentityProvider"]) {
            Some(Self::Machine)
        } else if has(&["WebIdentityProvider", "WorkloadIdentityOAuthProvider"]) {
            Some(Self::TokenFile)
        } else if has(&["TaskCredentialProvider", "EKSPodCredentialProvider"]) {
            Some(Self::Container)
        } else {
            Some(Self::Service)
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Machine => "the metadata service of this machine",
            Self::TokenFile => "the token service of the cloud",
            Self::Container => "the credentials service of this container",
            Self::Service => "the cloud's service for credentials",
        }
    }
}

/// Looks up credentials, and says so if it fails.
#[derive(Debug)]
pub(super) struct Lookup<T> {
    cloud: Cloud,
    source: Source,
    /// Where the credentials are looked up; `None` if there is no such place.
    inner: Option<Arc<dyn CredentialProvider<Credential = T>>>,
}

impl<T> Lookup<T> {
    /// A look-up that says when it fails, in place of a client's own; `None` if the client needs no
    /// look-up. `has_metadata_service` says whether the metadata service may be asked.
    pub(super) fn in_place_of(
        provider: &Arc<dyn CredentialProvider<Credential = T>>,
        cloud: Cloud,
        has_metadata_service: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let source = Source::of(provider)?;
        let may_ask = source != Source::Machine || has_metadata_service();
        Some(Self { cloud, source, inner: may_ask.then(|| provider.clone()) })
    }

    fn failed(&self, reason: Option<&Failure>) -> LookupFailed {
        let (name, cloud) = (self.source.name(), self.cloud);
        let text = match reason {
            None => {
                "this does not look like a machine of the cloud, and nothing else is set".to_owned()
            }
            Some(Failure::Denied(detail)) => format!("{name} refuses ({detail})"),
            Some(Failure::Missing | Failure::NoBucket) => format!("{name} has none (status 404)"),
            Some(Failure::Away(detail)) => format!("{name} is not available ({detail})"),
            Some(_) => format!("{name} gives no usable answer"),
        };
        let may_pass = matches!(reason, Some(Failure::Away(_)));
        LookupFailed(Failure::Credentials { cloud, text, may_pass })
    }
}

type Credential<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<Arc<T>>> + Send + 'a>>;

impl<T: Send + Sync + Debug> CredentialProvider for Lookup<T> {
    type Credential = T;

    fn get_credential<'a, 'b>(&'a self) -> Credential<'b, T>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let failed = |reason: Option<&Failure>| object_store::Error::Generic {
                store: "credentials",
                source: Box::new(self.failed(reason)),
            };
            match &self.inner {
                None => Err(failed(None)),
                Some(inner) => {
                    let found = inner.get_credential().await;
                    found.map_err(|error| failed(Some(&Failure::from_library(&error))))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hsipack_format::{Error, ErrorKind};
    use hsipack_testing::bucket::Bucket;
    use hsipack_testing::server::{Fault, Server};
    use hsipack_testing::skipped;

    use super::super::{options, read, set_options};
    use super::*;

    /// The error of reading from a bucket without keys, and with `more` options. The bucket must
    /// not be asked.
    fn refused(name: &str, more: Option<(&str, String)>) -> Error {
        let bucket = Bucket::start(name);
        bucket.put("object", vec![1]);
        let url = bucket.url("object");
        let kept = ["endpoint", "region"];
        let options = bucket.options().into_iter().filter(|(name, _)| kept.contains(&&**name));
        let more = more.map(|(name, value)| (name.to_owned(), value));
        set_options(&url, options.chain(more)).unwrap();
        let error = read(&url, 100).unwrap_err();
        assert!(bucket.requests().is_empty(), "{:?}", bucket.requests());
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*url)), "{error}");
        let remedy = error.remedy().unwrap().to_string();
        for word in ["AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "anon"] {
            assert!(remedy.contains(word), "{remedy}");
        }
        error
    }

    /// Whether the environment of the tests sets credentials.
    fn has_credentials() -> bool {
        let options = super::super::profile::of_environment();
        let has_key = options.iter().any(|(name, _)| name == "access_key_id");
        has_key
            || ["AWS_ACCESS_KEY_ID", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_ROLE_ARN"]
                .iter()
                .any(|name| options::variable(name).is_some())
    }

    #[test]
    fn a_look_up_that_fails_is_not_a_refusal_of_the_bucket() {
        if has_credentials() {
            return skipped("the environment has credentials");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("latest/api")).unwrap();
        std::fs::write(folder.path().join("latest/api/token"), "a token").unwrap();
        let refusing = Server::with_faults(folder.path(), |_| Fault::Status(403));
        let without_role = Server::start(folder.path());
        let endpoint = |server: &Server| {
            let url = server.url("").display().to_string();
            Some(("metadata_endpoint", url.trim_end_matches('/').to_owned()))
        };
        let error = refused("refused-look-up", endpoint(&refusing)).to_string();
        let text =
            "no credentials were found: the metadata service of this machine refuses (status 403)";
        assert!(error.contains(text), "{error}");
        let error = refused("machine-without-role", endpoint(&without_role)).to_string();
        assert!(error.contains("the metadata service of this machine has none"), "{error}");
        assert!(!without_role.requests().is_empty());
    }

    #[test]
    fn other_machines_are_not_asked_for_credentials() {
        let (options, root) = (std::iter::empty(), Path::new("/"));
        if has_credentials() || has_metadata_service(Cloud::Aws, options, options::variable, root) {
            return skipped("the environment has credentials, or this is a machine of a cloud");
        }
        let begun = Instant::now();
        let error = refused("no-look-up", None).to_string();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(error.contains("does not look like a machine of the cloud"), "{error}");
    }

    #[test]
    fn a_service_that_is_away_is_asked_again_later() {
        let lookup = Lookup::<()> { cloud: Cloud::Google, source: Source::Container, inner: None };
        let LookupFailed(failure) = lookup.failed(Some(&Failure::Away("status 503".to_owned())));
        let Failure::Credentials { text, may_pass, .. } = failure else { panic!("{failure:?}") };
        let service = "the credentials service of this container is not available (status 503)";
        assert_eq!((&*text, may_pass), (service, true));
        let LookupFailed(failure) = lookup.failed(None);
        assert!(matches!(failure, Failure::Credentials { may_pass: false, .. }));
    }

    fn may_ask(cloud: Cloud, options: &[&str], variables: &[(&str, &str)], root: &Path) -> bool {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        has_metadata_service(cloud, options.iter().copied(), variable, root)
    }

    #[test]
    fn machines_of_clouds_are_recognised_by_their_firmware() {
        let files = [
            (Cloud::Aws, "sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
            (Cloud::Aws, "sys/class/dmi/id/bios_version", "4.11.amazon\n"),
            (Cloud::Aws, "sys/hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n"),
            (Cloud::Google, "sys/class/dmi/id/product_name", "Google Compute Engine\n"),
            (
                Cloud::Azure,
                "sys/class/dmi/id/chassis_asset_tag",
                "7783-7084-3265-9085-8269-3286-77\n",
            ),
        ];
        for (cloud, file, content) in files {
            let root = tempfile::tempdir().unwrap();
            assert!(!may_ask(cloud, &[], &[], root.path()));
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "Another Vendor\n").unwrap();
            assert!(!may_ask(cloud, &[], &[], root.path()), "{file}");
            std::fs::write(&path, content).unwrap();
            for other in [Cloud::Aws, Cloud::Google, Cloud::Azure] {
                assert_eq!(may_ask(other, &[], &[], root.path()), other == cloud, "{file}");
            }
            if cloud == Cloud::Aws {
                let disabled = [("AWS_EC2_METADATA_DISABLED", "True")];
                assert!(!may_ask(cloud, &[], &disabled, root.path()));
            }
        }
    }

    #[test]
    fn a_metadata_service_that_is_configured_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let asks = |cloud, options: &[&str], variables: &[(&str, &str)]| {
            may_ask(cloud, options, variables, root.path())
        };
        assert!(asks(Cloud::Aws, &["region", "metadata_endpoint"], &[]));
        assert!(asks(Cloud::Aws, &["AWS_METADATA_ENDPOINT"], &[]));
        assert!(asks(Cloud::Aws, &[], &[("AWS_METADATA_ENDPOINT", "http://h")]));
        assert!(asks(Cloud::Google, &[], &[("GCE_METADATA_HOST", "h")]));
        assert!(asks(Cloud::Azure, &[], &[("IDENTITY_ENDPOINT", "http://h")]));
        assert!(asks(Cloud::Azure, &["azure_client_id"], &[]));
        assert!(!asks(Cloud::Azure, &["account_name", "endpoint"], &[("AWS_REGION", "r")]));
    }
}

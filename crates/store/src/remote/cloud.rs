//! The clouds whose clients look up credentials, and where they look.

/// A cloud whose clients look up credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cloud {
    Aws,
    Google,
    Azure,
}

impl Cloud {
    /// The remedy if no credentials were found.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Aws => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or key and secret in storage_options; \
                 for a public bucket, set AWS_SKIP_SIGNATURE=true, or anon in storage_options; \
                 if this machine has a role of EC2, set AWS_METADATA_ENDPOINT=http://169.254.169.254"
            }
            Self::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials; \
                 for a public bucket, set GOOGLE_SKIP_SIGNATURE=true, or skip_signature in storage_options; \
                 if this machine has a service account, set GCE_METADATA_HOST=metadata.google.internal"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or account_key in storage_options; \
                 for a public container, set AZURE_SKIP_SIGNATURE=true, or skip_signature in storage_options; \
                 if this machine has an identity, set AZURE_MSI_ENDPOINT=http://169.254.169.254/metadata/identity/oauth2/token"
            }
        }
    }

    /// Options and variables that exist only on machines of the cloud, or with which a user
    /// configures its metadata service.
    pub(super) fn settings(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Aws => (
                &["metadata_endpoint"],
                &[
                    "AWS_METADATA_ENDPOINT",
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                    "AWS_EXECUTION_ENV",
                ],
            ),
            Self::Google => (
                &[],
                &[
                    "GCE_METADATA_HOST",
                    "GCE_METADATA_ROOT",
                    "GCE_METADATA_IP",
                    "K_SERVICE",
                    "CLOUD_RUN_JOB",
                ],
            ),
            Self::Azure => (
                &["msi_endpoint", "identity_endpoint", "object_id", "msi_resource_id", "client_id"],
                &[
                    "IDENTITY_ENDPOINT",
                    "MSI_ENDPOINT",
                    "AZURE_MSI_ENDPOINT",
                    "AZURE_IDENTITY_ENDPOINT",
                    "AZURE_OBJECT_ID",
                    "AZURE_MSI_RESOURCE_ID",
                    "AZURE_CLIENT_ID",
                ],
            ),
        }
    }

    /// Files in which the firmware or the hypervisor of a machine of the cloud names itself, and
    /// how the text begins or ends.
    pub(super) fn signs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Aws => &[
                ("sys/class/dmi/id/sys_vendor", "amazon ec2"),
                ("sys/class/dmi/id/board_vendor", "amazon ec2"),
                ("sys/class/dmi/id/bios_vendor", "amazon ec2"),
                ("sys/class/dmi/id/bios_version", "amazon"),
                ("sys/hypervisor/uuid", "ec2"),
            ],
            Self::Google => &[
                ("sys/class/dmi/id/product_name", "google"),
                ("sys/class/dmi/id/sys_vendor", "google"),
            ],
            Self::Azure => {
                &[("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77")]
            }
        }
    }
}

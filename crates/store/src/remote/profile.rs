//! The profile of the AWS tools: `~/.aws/credentials` and `~/.aws/config`, or the files named in
//! the environment.
//!
//! Keys, region and endpoint come from the profile if the environment does not set them. Other
//! features of profiles (roles, single sign-on, programs) are not supported: for these,
//! `aws configure export-credentials --format env` gives the keys.

use std::path::PathBuf;

use ini::Ini;

use super::options::variable;

/// Options from the profile that the environment selects, with the names that the S3 client uses.
pub(super) fn of_environment() -> Vec<(String, String)> {
    let file = |name: &str, otherwise: &str| {
        variable(name)
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".aws").join(otherwise)))
    };
    let load =
        |path: Option<PathBuf>| path.and_then(|path| Ini::load_from_file_noescape(path).ok());
    let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let profile = of_files(
        &name,
        load(file("AWS_SHARED_CREDENTIALS_FILE", "credentials")).as_ref(),
        load(file("AWS_CONFIG_FILE", "config")).as_ref(),
    );
    let keys = variable("AWS_ACCESS_KEY_ID").is_some();
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")).is_some();
    let endpoint =
        variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")).is_some();
    let is_set = |option: &str| match option {
        "region" => region,
        "endpoint_url" => endpoint,
        _ => keys,
    };
    profile.into_iter().filter(|(option, _)| !is_set(option)).collect()
}

/// The options of a profile. The credentials file takes precedence over the config file.
fn of_files(name: &str, credentials: Option<&Ini>, config: Option<&Ini>) -> Vec<(String, String)> {
    // In the config file, the sections are named `profile NAME`, except for the default profile.
    let long = format!("profile {name}");
    let config =
        config.and_then(|ini| ini.section(Some(&long)).or_else(|| ini.section(Some(name))));
    let credentials = credentials.and_then(|ini| ini.section(Some(name)));
    let value = |key: &str| {
        [credentials, config].into_iter().flatten().find_map(|section| section.get(key))
    };
    let options = [
        ("aws_access_key_id", "access_key_id"),
        ("aws_secret_access_key", "secret_access_key"),
        ("aws_session_token", "token"),
        ("region", "region"),
        ("endpoint_url", "endpoint_url"),
    ];
    options
        .into_iter()
        .filter_map(|(key, option)| Some((option.to_owned(), value(key)?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_before_settings_and_profiles_are_told_apart() {
        let credentials = Ini::load_from_str_noescape(
            "[default]\naws_access_key_id = A\naws_secret_access_key = a/b+c\\d\n[other]\naws_access_key_id = B\n",
        )
        .unwrap();
        let config = Ini::load_from_str_noescape(
            "[default]\nregion = r0\naws_access_key_id = no\n[profile other]\nregion = r1\nendpoint_url = http://h\n",
        )
        .unwrap();
        let of = |name: &str| of_files(name, Some(&credentials), Some(&config));
        let options = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let default = [("access_key_id", "A"), ("secret_access_key", "a/b+c\\d"), ("region", "r0")];
        assert_eq!(of("default"), options(&default));
        let other = [("access_key_id", "B"), ("region", "r1"), ("endpoint_url", "http://h")];
        assert_eq!(of("other"), options(&other));
        assert!(of("none").is_empty());
        assert!(of_files("default", None, None).is_empty());
    }
}

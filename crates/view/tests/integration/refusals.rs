//! Requests that the server refuses, and its errors for invalid requests.

use std::fs;

use hsipack_view::Subject;
use walkdir::WalkDir;

use crate::common::{Viewed, dataset};

#[test]
fn only_the_page_with_its_token_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let Viewed { host, token, .. } = &viewed;
    let head = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}{more}");
    let about = format!("/{token}/api/about");
    let same_origin = format!("\r\nOrigin: http://{host}");
    assert_eq!(viewed.send(&head(&about, &same_origin)).status, 200);
    let token_lacks =
        ["/", "/api/about", "/x/api/about", &format!("/{}/api/about", "0".repeat(32))];
    for path in token_lacks {
        let refused = viewed.send(&head(path, ""));
        assert_eq!(refused.status, 403);
        assert!(refused.error().contains("token"), "{path}");
        assert!(!String::from_utf8_lossy(&refused.body).contains(token.as_str()));
    }
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(viewed.send(&head(&about, &format!("\r\nOrigin: {origin}"))).status, 403);
    }
    // A foreign host name that leads to this server.
    let rebound =
        format!("GET {about} HTTP/1.1\r\nHost: evil.example:{}", host.rsplit(':').next().unwrap());
    assert_eq!(viewed.send(&rebound).status, 403);
    let post = format!("POST {about} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0");
    assert_eq!(viewed.send(&post).status, 405);
    let page = viewed.get("");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
}

#[test]
fn questions_that_are_none_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    for (path, status, what) in [
        ("api/cube/12", 404, "no cube 12; there are 12"),
        ("api/cube/x", 404, "nothing at this address"),
        ("api/nothing", 404, "nothing at this address"),
        ("../Cargo.toml", 404, "nothing at this address"),
        ("api/cube/0/planes", 400, "bands="),
        ("api/cube/0/planes?bands=5", 400, "numbers below 5"),
        ("api/cube/0/planes?bands=0&side=100000", 400, "a number up to 2048"),
        ("api/cube/0/planes?bands=0&rows=0:7", 400, "START:END within 0:6"),
        ("api/cube/0/spectrum?rows=5:2", 400, "START:END"),
        ("api/samples?limit=501", 400, "a number up to 500"),
        ("api/thumbnail/0?side=513", 400, "a number up to 512"),
    ] {
        let answer = viewed.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.error().contains(what), "{path}: {}", answer.error());
    }
}

#[test]
fn a_folder_without_cubes_is_told_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let error = Subject::open(&folder.path().to_string_lossy(), None).unwrap_err();
    assert!(error.to_string().contains("no cube in this folder"), "{error}");
}

#[test]
fn a_damaged_chunk_is_an_error_and_a_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    for entry in WalkDir::new(path.join("6x9x5").join("image")) {
        let entry = entry.unwrap();
        let is_shard = entry.file_type().is_file() && entry.file_name() != "zarr.json";
        if is_shard {
            let mut bytes = fs::read(entry.path()).unwrap();
            bytes[20..40].fill(0xAA);
            fs::write(entry.path(), bytes).unwrap();
        }
    }
    let viewed = Viewed::of(&path);
    let damaged = viewed.get("api/thumbnail/0");
    assert_eq!(damaged.status, 422, "{}", String::from_utf8_lossy(&damaged.body));
    let listed = viewed.get("api/samples?limit=1").json();
    assert_eq!(listed["samples"][0]["marks"][0]["kind"], "damaged", "{listed}");
    assert_eq!(viewed.get("api/cube/0/planes?bands=0").status, 422);
    assert_eq!(viewed.get("api/about").status, 200);
}

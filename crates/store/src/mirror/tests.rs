use std::os::unix::fs::PermissionsExt;

use hsipack_testing::bucket::{Bucket, BucketFault};

use super::*;

#[test]
fn whoever_looks_for_a_file_waits_until_those_beside_it_are_there() {
    let bucket = Bucket::start("mirror-beside");
    remote::set_options(&bucket.url(""), bucket.options()).unwrap();
    for name in ["a/one", "a/two", "b/one", "b/c/two"] {
        bucket.put(name, name.as_bytes().to_vec());
    }
    bucket.set_faults(|request| {
        if request.key.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        BucketFault::None
    });
    let _session = session();
    let first = file(&bucket.url("a/one")).unwrap().unwrap();
    let other = first.with_file_name("../b/one");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                look(&other).unwrap();
                assert!(first.parent().unwrap().join("../b/one").is_file());
                assert_eq!(crate::bounded_read::read(&other, 100).unwrap(), b"b/one");
                assert_eq!(url_of(&other).unwrap(), bucket.url("b/one"));
            });
        }
    });
    let below = file(&bucket.url("b")).unwrap().unwrap();
    assert!(below.join("c/two").is_file());
    assert_eq!(file(&bucket.url("nothing")).unwrap(), None);
    let root = holding(&first).unwrap().root.clone();
    assert_eq!(fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(
        with_urls(&format!("in {}: wrong", first.display()))
            .contains("in s3://mirror-beside/a/one: wrong")
    );
}

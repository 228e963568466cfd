//! Responses contain the packed values.

use std::collections::BTreeMap;

use hsipack_pack::convert::MaskOption;
use hsipack_view::{Options, Subject};
use serde_json::{Value, json};

use crate::common::{
    BANDS, COLUMNS, ROWS, SAMPLES, Viewed, dataset, label, value, write_envi, write_npy,
};

/// Whether two values are equal, or both are NaN.
fn same(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-6 * wanted.abs() || (found.is_nan() && wanted.is_nan())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Checks all kinds of requests for a cube with the values of sample `sample`.
pub fn check_cube(viewed: &Viewed, id: usize, sample: usize) {
    let planes = viewed.get(&format!("api/cube/{id}/planes?bands=4,1"));
    assert_eq!(planes.shape(), [2, ROWS, COLUMNS]);
    let mut found = planes.singles().into_iter();
    for band in [4, 1] {
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                let (found, wanted) = (found.next().unwrap(), value(sample, row, column, band));
                assert!(same(f64::from(found), wanted), "{row} {column} {band}: {found} {wanted}");
            }
        }
    }
    let part = viewed.get(&format!("api/cube/{id}/planes?bands=0&rows=1:6&columns=3:7&side=2"));
    // Five rows become two and four columns become one: rows 1 + 1 and 1 + 3, column 3 + 2.
    assert_eq!(part.shape(), [1, 2, 1]);
    let wanted = [value(sample, 2, 5, 0), value(sample, 4, 5, 0)].map(|value| value as f32);
    assert_eq!(part.singles(), wanted);
    let pixel = viewed.get(&format!("api/cube/{id}/spectrum?rows=2:3&columns=4:5")).json();
    assert_eq!((&pixel["pixels"], &pixel["std"]), (&json!(1), &Value::Null));
    for band in 0..BANDS {
        assert!(same(number(&pixel["mean"][band]), value(sample, 2, 4, band)), "{pixel}");
    }
    let some = viewed.get(&format!("api/cube/{id}/spectrum?rows=1:3&columns=4:8")).json();
    for band in 0..BANDS {
        let all: Vec<f64> = (1..3)
            .flat_map(|row| (4..8).map(move |column| value(sample, row, column, band)))
            .filter(|value| value.is_finite())
            .collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let square = all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!(same(number(&some["mean"][band]), mean), "{some}");
        assert!((number(&some["std"][band]) - square.sqrt()).abs() < 1e-6, "{some}");
    }
    let angles = viewed.get(&format!("api/cube/{id}/angles?rows=5:6&columns=0:1"));
    assert_eq!(angles.shape(), [ROWS, COLUMNS]);
    // Band 3 is bad.
    let spectrum = |row, column| [0, 1, 2, 4].map(|band| value(sample, row, column, band));
    let dot = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (at, found) in angles.singles().into_iter().enumerate() {
        let (spectrum_here, other) = (spectrum(at / COLUMNS, at % COLUMNS), spectrum(5, 0));
        let cosine = dot(spectrum_here, other)
            / (dot(spectrum_here, spectrum_here) * dot(other, other)).sqrt();
        let wanted = cosine.clamp(-1.0, 1.0).acos();
        let found = f64::from(found);
        assert!(
            (found - wanted).abs() < 1e-4 || found.is_nan() && wanted.is_nan(),
            "{at}: {found} {wanted}"
        );
    }
    let thumbnail = viewed.get(&format!("api/thumbnail/{id}?side=5"));
    assert_eq!(thumbnail.header("content-type"), Some("image/png"));
    let decoder = png(&thumbnail.body);
    assert_eq!(decoder, (5, 3));
}

/// Width and height of a picture.
fn png(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn a_dataset_is_shown_as_it_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let about = viewed.get("api/about").json();
    assert_eq!((&about["kind"], &about["samples"]), (&json!("dataset"), &json!(SAMPLES)));
    assert_eq!(about["title"], "trees.hsipack");
    assert_eq!(
        about["splits"],
        json!([{"value": "train", "count": 8}, {"value": "test", "count": 4}])
    );
    assert_eq!(about["columns"], json!(["age"]));
    assert_eq!(about["stacks"][0]["masks"], json!(["mask"]));
    for sample in [0, 3, SAMPLES - 1] {
        check_cube(&viewed, sample, sample);
    }
    let facts = viewed.get("api/cube/3").json();
    assert_eq!(facts["shape"], json!([ROWS, COLUMNS, BANDS]));
    assert_eq!(facts["wavelength"], json!([450.0, 550.0, 640.0, 700.0, 860.0]));
    assert_eq!(facts["good_bands"], json!([true, true, true, false, true]));
    assert_eq!(facts["presets"][0]["bands"], json!([2, 1, 0]));
    assert_eq!(facts["geo"]["crs"], "EPSG:32632");
    assert_eq!((&facts["previous"], &facts["next"]), (&json!(2), &json!(4)));
    assert_eq!(facts["marks"][0], json!({"kind": "nan", "text": "1 value is NaN"}));
    assert!(facts["fields"].as_array().unwrap().contains(&json!(["label", "beech"])), "{facts}");
}

#[test]
fn masks_and_classes_are_those_of_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let mask = viewed.get("api/cube/1/mask/mask");
    assert_eq!(mask.shape(), [ROWS, COLUMNS]);
    let (labels, _) = mask.body.as_chunks::<2>();
    for (at, found) in labels.iter().enumerate() {
        assert_eq!(u16::from_le_bytes(*found), u16::from(label(at / COLUMNS, at % COLUMNS)));
    }
    let classes = viewed.get("api/cube/1/classes/mask").json();
    assert_eq!(classes["thinned"], false);
    let mut sums: BTreeMap<u8, (u64, f64)> = BTreeMap::new();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let (count, sum) = sums.entry(label(row, column)).or_default();
            (*count, *sum) = (*count + 1, *sum + value(1, row, column, 2));
        }
    }
    for (class, (id, (count, sum))) in classes["classes"].as_array().unwrap().iter().zip(sums) {
        assert_eq!((&class["id"], &class["pixels"]), (&json!(id), &json!(count)));
        assert!(same(number(&class["mean"][2]), sum / count as f64), "{class}");
    }
    let listed = &viewed.get("api/cube/1").json()["masks"][0];
    let ids: Vec<&Value> =
        listed["classes"].as_array().unwrap().iter().map(|class| &class["id"]).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(listed["classes"][1]["colour"], "#0072b2");
    assert!(viewed.get("api/cube/1/mask/other").error().contains("no mask 'other'"));
}

#[test]
fn samples_are_listed_filtered_and_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let ids = |query: &str| -> (u64, Vec<u64>) {
        let list = viewed.get(&format!("api/samples?{query}")).json();
        let ids =
            list["samples"].as_array().unwrap().iter().map(|sample| sample["id"].as_u64().unwrap());
        (list["total"].as_u64().unwrap(), ids.collect())
    };
    assert_eq!(ids("limit=3&offset=10"), (12, vec![10, 11]));
    assert_eq!(ids("split=test"), (4, vec![8, 9, 10, 11]));
    assert_eq!(ids("split="), (0, vec![]));
    assert_eq!(ids("label=%22oak%22&split=test"), (2, vec![8, 10]));
    assert_eq!(ids("where=age+%3C+41&sort=age"), (2, vec![11, 10]));
    assert_eq!(ids("where=age+%3E+1000"), (0, vec![]));
    assert_eq!(ids("sort=label&limit=2"), (12, vec![1, 3]));
    assert_eq!(ids("sort=name&descending=1&limit=2"), (12, vec![11, 10]));
    assert_eq!(ids("sort=nan&descending=1&limit=1"), (12, vec![3]));
    assert!(viewed.get("api/samples?where=agee+%3C+3").error().contains("no column 'agee'"));
    assert!(viewed.get("api/samples?sort=agee").error().contains("no column 'agee'"));
    let last = &viewed.get("api/samples?offset=11").json()["samples"][0];
    assert_eq!(last["name"], "z<img src=x>");
}

#[test]
fn cubes_in_files_are_shown_without_being_packed() {
    let folder = tempfile::tempdir().unwrap();
    let (first, other) = (folder.path().join("a"), folder.path().join("b"));
    write_envi(&first, 3);
    write_envi(&other, 5);
    let viewed = Viewed::of(&first.with_extension("hdr"));
    check_cube(&viewed, 0, 3);
    let about = viewed.get("api/about").json();
    assert_eq!((&about["kind"], &about["samples"]), (&json!("cubes"), &json!(1)));
    let both = Viewed::of(folder.path());
    assert_eq!(both.get("api/samples?sort=name&descending=1").json()["samples"][0]["name"], "b");
    check_cube(&both, 1, 5);
    check_cube(&both, 0, 3);
}

#[test]
fn masks_in_files_are_shown_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    // Like the mask, except for one column.
    for sample in 0..SAMPLES {
        let labels: Vec<u8> = (0..ROWS * COLUMNS)
            .map(|at| if at % COLUMNS == 8 { 7 } else { label(at / COLUMNS, at % COLUMNS) })
            .collect();
        let file = folder.path().join(format!("predicted_{sample}.npy"));
        write_npy(&file, "|u1", &[ROWS, COLUMNS], &labels);
    }
    let pattern = folder.path().join("predicted_0.npy").to_string_lossy().into_owned();
    let option = |name: &str, pattern: &str| MaskOption::new(name, pattern);
    let open = || Subject::open(&path.to_string_lossy(), None).unwrap();
    let clash = open().with_masks(&[option("mask", &pattern)]).unwrap_err();
    assert!(clash.to_string().contains("already has a mask named mask"), "{clash}");
    let lost = option("lost", "{dir}/{name}_lost.npy");
    let subject = open().with_masks(&[option("predicted", &pattern), lost]).unwrap();
    let viewed = Viewed::start(subject, &Options::default());
    let facts = viewed.get("api/cube/0").json();
    let names: Vec<&Value> =
        facts["masks"].as_array().unwrap().iter().map(|mask| &mask["name"]).collect();
    assert_eq!(names, ["mask", "predicted"]);
    assert!(facts["notes"][0].as_str().unwrap().contains("mask lost is not shown"), "{facts}");
    let mask = viewed.get("api/cube/0/mask/predicted?rows=1:2&columns=7:9");
    assert_eq!(mask.body, [1, 0, 7, 0]);
    let found = viewed.get("api/cube/0/confusion?truth=mask&prediction=predicted").json();
    let ids: Vec<&Value> =
        found["classes"].as_array().unwrap().iter().map(|class| &class["id"]).collect();
    assert_eq!(ids, [0, 1, 2, 3, 7]);
    // In the five rows below the first one, columns 5 to 7 are right and column 8 is wrong.
    assert_eq!(found["counts"][1], json!([0, 15, 0, 0, 5]));
    assert_eq!(found["counts"][3], json!([0, 0, 0, 3, 1]));
    assert!(viewed.get("api/cube/0/confusion?truth=mask").error().contains("no mask ''"));
}

#[test]
fn changes_by_packing_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    // The source of sample 1 has changed: one value is greater by 1/8.
    let raw = folder.path().join("cubes").join("s01.raw");
    let mut bytes = std::fs::read(&raw).unwrap();
    let at = 4 * ((2 * ROWS + 3) * COLUMNS + 4);
    let changed = value(1, 3, 4, 2) as f32 + 0.125;
    bytes[at..at + 4].copy_from_slice(&changed.to_le_bytes());
    std::fs::write(&raw, bytes).unwrap();
    let viewed = Viewed::of(&path);
    let same = viewed.get("api/cube/0/precision").json();
    assert_eq!((&same["source_changed"], &same["dtype"]), (&json!(false), &json!("float16")));
    assert_eq!(same["bands"][2]["max_abs"], 0.0);
    assert_eq!(same["bands"][2]["count"], json!(ROWS * COLUMNS));
    let other = viewed.get("api/cube/1/precision").json();
    assert_eq!(other["source_changed"], true);
    assert_eq!(other["bands"][2]["max_abs"], 0.125);
    let share = 0.125 / f64::from(changed);
    assert!(same_number(&other["bands"][2]["max_rel"], share), "{other}");
    let map = viewed.get("api/cube/1/deviation?band=2&rows=3:4");
    assert_eq!(map.shape(), [1, COLUMNS]);
    let wanted: Vec<f32> =
        (0..COLUMNS).map(|column| if column == 4 { -0.125 } else { 0.0 }).collect();
    assert_eq!(map.singles(), wanted);
    let whole = viewed.get("api/cube/1/deviation").singles();
    assert!(
        whole[3 * COLUMNS + 4] > 0.0 && whole.iter().filter(|value| **value > 0.0).count() == 1
    );
    std::fs::remove_file(raw.with_extension("hdr")).unwrap();
    assert!(viewed.get("api/cube/1/precision").error().contains("is missing"));
    let raw = Viewed::of(&folder.path().join("cubes").join("s00.hdr"));
    assert!(raw.get("api/cube/0/precision").error().contains("not packed"));
}

fn same_number(found: &Value, wanted: f64) -> bool {
    same(number(found), wanted)
}

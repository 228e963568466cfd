//! The shown items of training are those of the loader, item by item.

use form_urlencoded::byte_serialize;
use hsipack_view::{Options, Subject, Training};
use serde_json::{Value, json};

use crate::common::{
    BANDS, COLUMNS, ROWS, SAMPLES, Viewed, count, dataset, integers, label, value,
};

fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

/// The values of an image of a window of the cube of a sample, one band after the other.
fn stored(sample: usize, [row, column, rows, columns]: [usize; 4]) -> Vec<f32> {
    let mut all = Vec::new();
    for band in 0..BANDS {
        for row in row..row + rows {
            for column in column..column + columns {
                all.push(value(sample, row, column, band) as f32);
            }
        }
    }
    all
}

fn same(found: &[f32], wanted: &[f32]) -> bool {
    let equal = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-2 || (a.is_nan() && b.is_nan());
    found.len() == wanted.len() && found.iter().zip(wanted).all(equal)
}

fn window(item: &Value) -> [usize; 4] {
    let numbers: Vec<i64> = serde_json::from_value(item["window"].clone()).unwrap();
    [0, 1, 2, 3].map(|at| numbers[at] as usize)
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[test]
fn every_window_of_an_epoch_has_the_values_of_its_cube() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let setup = "batch_size=5&crop=random&rows=3&columns=4&per_cube=2&seed=8&epoch=2";
    let about = viewed.get(&format!("api/training?{setup}")).json();
    assert_eq!((&about["items"], &about["batches"]), (&json!(2 * SAMPLES), &json!(5)));
    assert_eq!((&about["ops"], &about["masks"]), (&Value::Null, &json!(["mask"])));
    assert_eq!(about["setup"]["size"], json!([3, 4]));
    let mut windows = vec![0; SAMPLES];
    for batch in 0..5 {
        let of = format!("{setup}&batch={batch}");
        let listed = viewed.get(&format!("api/training/batch?{of}")).json();
        assert_eq!(listed["before"], json!([3, 4, BANDS]));
        assert_eq!(listed["presets"][0]["bands"], json!([2, 1, 0]));
        for (position, item) in listed["items"].as_array().unwrap().iter().enumerate() {
            let (sample, window) = (number(&item["sample"]), window(item));
            windows[sample] += 1;
            assert_eq!(item["label"], ["oak", "beech"][sample % 2]);
            let of = format!("{of}&place={position}&what=read");
            let planes = viewed.get(&format!("api/training/planes?{of}&bands=0,1,2,3,4"));
            assert_eq!(planes.shape(), [BANDS, 3, 4]);
            assert!(same(&planes.singles(), &stored(sample, window)), "{item}");
            let mask = viewed.get(&format!("api/training/mask?{of}&name=mask"));
            let (ids, _) = mask.body.as_chunks::<2>();
            let wanted = (0..12).map(|at| label(window[0] + at / 4, window[1] + at % 4));
            assert!(ids.iter().map(|id| u16::from_le_bytes(*id)).eq(wanted.map(u16::from)));
            let pixel = viewed.get(&format!("api/training/spectrum?{of}&row=2&column=1")).json();
            assert_eq!((&pixel["pixels"], &pixel["std"]), (&json!(1), &Value::Null));
            let wanted = value(sample, window[0] + 2, window[1] + 1, 4);
            assert_eq!(pixel["mean"][4], json!(wanted));
        }
        let found = viewed.get(&format!("api/training/places?{setup}&sample=4")).json();
        for occurrence in found["places"].as_array().unwrap() {
            let same = |item: &Value| item["window"] == occurrence["window"];
            if occurrence["batch"] == batch {
                assert!(same(&listed["items"][number(&occurrence["place"])]), "{found}");
            }
        }
        assert_eq!(found["places"].as_array().unwrap().len(), 2);
    }
    assert!(windows.iter().all(|windows| *windows == 2), "{windows:?}");
}

#[test]
fn augmented_items_match_their_draws() {
    let folder = tempfile::tempdir().unwrap();
    let json = r#"{"seed": 3, "ops": [{"op": "hflip", "p": 0.5}]}"#;
    let training = Training { augment: Some(json.to_owned()), ..Training::default() };
    let path = dataset(folder.path());
    let subject = Subject::open(&path.to_string_lossy(), None).unwrap();
    let viewed = Viewed::start(subject.with_training(training).unwrap(), &Options::default());
    assert_eq!(viewed.get("api/about").json()["training"], true);
    assert_eq!(viewed.get("api/training").json()["setup"]["augment_seed"], "3");
    let (mut flipped, mut kept) = (0, 0);
    for batch in 0..2 {
        let of = format!("epoch=1&batch={batch}");
        let listed = viewed.get(&format!("api/training/batch?{of}")).json();
        for (position, item) in listed["items"].as_array().unwrap().iter().enumerate() {
            let step = &item["steps"][0];
            assert_eq!(step["op"], "hflip");
            let sample = number(&item["sample"]);
            let plain = stored(sample, [0, 0, ROWS, COLUMNS]);
            let rows = plain.chunks_exact(COLUMNS);
            let wanted: Vec<f32> = match step["drawn"].is_null() {
                true => plain.clone(),
                false => rows.flat_map(|row| row.iter().rev().copied()).collect(),
            };
            *(if step["drawn"].is_null() { &mut kept } else { &mut flipped }) += 1;
            let of = format!("{of}&place={position}&bands=0,1,2,3,4");
            let planes = viewed.get(&format!("api/training/planes?{of}")).singles();
            assert!(same(&planes, &wanted), "{item}");
            let read = viewed.get(&format!("api/training/planes?{of}&what=read")).singles();
            assert!(same(&read, &plain), "{item}");
        }
    }
    assert!(flipped > 0 && kept > 0, "{flipped} {kept}");
    // The list in the request replaces the one at the start.
    let none = viewed.get("api/training/batch?augment=").json();
    assert_eq!(none["items"][0]["steps"], json!([]));
}

#[test]
fn mixed_items_are_mixed_with_the_others_of_their_batch() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let augment = encoded(r#"[{"op": "mixup", "p": 1}]"#);
    let of = format!("augment={augment}&order=sequential&batch_size=4&batch=1");
    let listed = viewed.get(&format!("api/training/batch?{of}")).json();
    let items = listed["items"].as_array().unwrap();
    for (position, item) in items.iter().enumerate() {
        let step = &item["steps"][0];
        let donor = number(&items[number(&step["donor"])]["sample"]);
        let share = step["drawn"]["lambda"].as_f64().unwrap() as f32;
        let [first, other] =
            [number(&item["sample"]), donor].map(|id| stored(id, [0, 0, ROWS, COLUMNS]));
        let wanted: Vec<f32> = first.iter().zip(&other).map(|(a, b)| a + (b - a) * share).collect();
        let planes =
            viewed.get(&format!("api/training/planes?{of}&place={position}&bands=0,1,2,3,4"));
        let found = planes.singles();
        let near =
            |(a, b): (&f32, &f32)| (a - b).abs() <= 0.02 * b.abs() || a.is_nan() && b.is_nan();
        assert!(found.iter().zip(&wanted).all(near), "{item}");
    }
}

#[test]
fn patches_have_the_labels_of_their_centres() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = Viewed::of(&dataset(folder.path()));
    let of = "crop=patches&rows=3&columns=3&mask=mask&batch_size=60000&split=train";
    let about = viewed.get(&format!("api/training?{of}")).json();
    let labelled = (0..ROWS * COLUMNS).filter(|at| label(at / COLUMNS, at % COLUMNS) != 0).count();
    assert_eq!(about["items"], json!(8 * labelled));
    let listed = viewed.get(&format!("api/training/batch?{of}&first=5&limit=9")).json();
    assert_eq!((&listed["total"], listed["items"].as_array().unwrap().len()), (&about["items"], 9));
    for item in listed["items"].as_array().unwrap() {
        let numbers: Vec<i64> = serde_json::from_value(item["window"].clone()).unwrap();
        let at = [numbers[0] + 1, numbers[1] + 1].map(|at| at as usize);
        assert_eq!(item["label"], label(at[0], at[1]).to_string());
    }
}

#[test]
fn chosen_bands_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut training = Training::default();
    training.loader.bands = Some(vec![4, 2, 1]);
    let path = dataset(folder.path());
    let subject = Subject::open(&path.to_string_lossy(), None).unwrap();
    let viewed = Viewed::start(subject.with_training(training).unwrap(), &Options::default());
    let listed = viewed.get("api/training/batch").json();
    assert_eq!(listed["bands"], json!([4, 2, 1]));
    let of_all = Viewed::of(&path).get("api/training/batch").json();
    let preset = &listed["presets"][0];
    let caption = preset["caption"].as_str().unwrap();
    // Bands are given as places among the bands that are read. The caption has their numbers.
    for entry in preset["bands"].as_array().unwrap() {
        let band = [4, 2, 1][number(entry)];
        assert!(caption.contains(&band.to_string()), "{preset}");
        let nm = &of_all["wavelength"][band];
        assert_eq!(&listed["wavelength"][number(entry)], nm);
    }
    let sample = number(&listed["items"][0]["sample"]);
    let planes = viewed.get("api/training/planes?bands=0,1,2").singles();
    let stored = stored(sample, [0, 0, ROWS, COLUMNS]);
    let plane = |band: usize| &stored[band * ROWS * COLUMNS..(band + 1) * ROWS * COLUMNS];
    assert!(same(&planes, &[plane(4), plane(2), plane(1)].concat()));
}

#[test]
fn impossible_requests_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let viewed = Viewed::of(&path);
    let error = |question: &str| viewed.get(&format!("api/training{question}")).error();
    let augment = |json: &str| error(&format!("/batch?augment={}", encoded(json)));
    assert!(augment(r#"[{"op": "hflop"}]"#).contains("unknown variant `hflop`"));
    assert!(augment("nothing").contains("not a list of augmentations"));
    let large = r#"[{"op": "random_crop", "size": [60, 60]}]"#;
    assert!(augment(large).contains("60"), "{}", augment(large));
    assert!(augment(&format!("[{}]", " ".repeat(17_000))).contains("bytes"));
    assert!(error("/batch?batch=99").contains("no batch 99"));
    assert!(error("?crop=random&rows=600").contains("crop"));
    assert!(error("?crop=patches&mask=leaf&rows=3&columns=3").contains("leaf"));
    assert!(error("/planes?place=99&bands=0").contains("place=99"));
    assert!(error("/planes?bands=5").contains("bands=5"));
    assert!(error("/mask?name=leaf").contains("no mask 'leaf'"));
    assert!(error("/planes?bands=0&what=x").contains("what=x"));
    assert_eq!(viewed.get("api/training/nothing").status, 404);
    let raw = Viewed::of(&folder.path().join("cubes/s00.hdr"));
    assert!(raw.get("api/training").error().contains("not packed"));
    let training = Training { augment: Some("[{}]".to_owned()), ..Training::default() };
    let subject = Subject::open(&path.to_string_lossy(), None).unwrap();
    assert!(subject.with_training(training).is_err());
}

/// The values of the planes of each item of the first batch, after augmentations, and of its cube.
fn planes_and_values(viewed: &Viewed, setup: &str, value: impl Fn([usize; 4]) -> f32) {
    let listed = viewed.get(&format!("api/training/batch?{setup}")).json();
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 4);
    for (position, item) in items.iter().enumerate() {
        let sample = number(&item["sample"]);
        let of = format!("{setup}&place={position}&bands=0,1,2,3,4");
        for what in ["read", "augmented"] {
            let planes = viewed.get(&format!("api/training/planes?{of}&what={what}")).singles();
            let is_turned = what == "augmented" && !item["steps"][0]["drawn"].is_null();
            let column = |at: usize| if is_turned { COLUMNS - 1 - at } else { at };
            let wanted = (0..BANDS * ROWS * COLUMNS).map(|at| {
                let (band, row) = (at / (ROWS * COLUMNS), at / COLUMNS % ROWS);
                value([sample, row, column(at % COLUMNS), band])
            });
            assert!(same(&planes, &wanted.collect::<Vec<_>>()), "{setup} {item}");
        }
    }
}

#[test]
fn integers_are_shown_as_physical_values_or_as_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let flip = "&augment=%5B%7B%22op%22:%22hflip%22%7D%5D";
    for (name, factor, dtype) in [("small", 1.0, "float16"), ("large", 10_000.0, "float32")] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let viewed = Viewed::of(&integers(&folder.path().join(name), factor));
        let about = viewed.get("api/training").json();
        assert_eq!(about["setup"]["physical"], json!(true));
        // Physical values that float16 does not hold come as float32.
        assert_eq!(about["setup"]["dtype"], json!(dtype));
        for setup in ["batch_size=8", "batch_size=8&physical=1"] {
            planes_and_values(&viewed, &format!("{setup}{flip}"), |[sample, row, column, band]| {
                (value(sample, row, column, band) * factor) as f32
            });
        }
        let numbers = viewed.get("api/training?physical=0").json();
        assert_eq!(numbers["setup"]["physical"], json!(false));
        planes_and_values(&viewed, &format!("physical=0{flip}"), |[sample, row, column, band]| {
            match count(sample, row, column, band) {
                -9999 => f32::NAN,
                number => number.into(),
            }
        });
    }
}

//! The Rust of the README: it compiles, and is this text.

use hsipack_read::augment::Pipeline;
use hsipack_read::{Dataset, DeviceLoader, DeviceOptions, LoaderOptions};
use hsipack_torch::{Libtorch, Tensor, best_device};

/// The step of a training: images, and masks with their names.
type Step<'a> = &'a dyn Fn(&Tensor, &[(String, Tensor)]);

/// Between the first and the last line, as in the README.
fn train(step: Step<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let dataset = Dataset::open("scans.hsipack")?;
    let pipeline = Pipeline::from_json(&std::fs::read_to_string("pipeline.json")?)?;
    let device = DeviceOptions::new(best_device());
    let mut loader =
        DeviceLoader::new(&dataset, LoaderOptions::new(6), device, Libtorch::default())?;
    for batch in loader.epoch() {
        let mut batch = batch?;
        batch.augment(&pipeline)?; // images and masks together, on the device
        step(&batch.image, &batch.masks);
    }
    Ok(())
}

#[test]
fn the_readme_has_the_code_that_compiles_here() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let code = |text: &'static str, before: &str, after: &str| {
        let text = text.split_once(before).expect("the start of the code").1;
        words(text.split_once(after).expect("the end of the code").0)
    };
    let here = code(include_str!("readme.rs"), "Box<dyn std::error::Error>> {\n", "    Ok(())\n");
    assert_eq!(code(include_str!("../../../../README.md"), "```rust\n", "```"), here);
    // Without the dataset, it ends with the error that names it.
    let error = train(&|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("scans.hsipack"), "{error}");
}

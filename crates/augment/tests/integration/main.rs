//! Augmentations, tested through the public interface.

mod check;
mod contract;
mod options;

mod host {
    use hsipack_augment::Host;

    crate::contract! { |pipeline: &_, images: &_, parameters: &_, threads| {
        hsipack_augment::Pipeline::apply(pipeline, &Host::new(threads), images, parameters)
    } }
}

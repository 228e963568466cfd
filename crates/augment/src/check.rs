//! Whether a pipeline can be applied to images of a size, without any images.

use hsipack_format::{Error, Result};

use crate::apply::{fill_of, need_masks, too_late_to_restore};
use crate::array::ElementType;
use crate::frame::Frame;
use crate::fusion::{stages, task};
use crate::ops::Op;
use crate::parameters::Step;
use crate::pipeline::Pipeline;

impl Pipeline {
    /// Checks that the pipeline can be applied to images of this frame with these masks and targets
    /// (names and element types), and returns the frame of the results. Touches no pixels, and
    /// takes a moment.
    ///
    /// Finds what [`draw`](Self::draw) and [`apply`](Self::apply) would find for batches of such
    /// images: options that are not valid, crops larger than the image, lists that do not have a
    /// number for each band, masks that are missing. Where it depends on chance whether an
    /// augmentation fits, as for quarter turns drawn as Kornia does, it does not.
    ///
    /// ```
    /// use hsipack_augment::{ElementType, Frame, Pipeline};
    ///
    /// let pipeline = Pipeline::from_json(r#"[{"op": "random_crop", "size": [64, 64]}, {"op": "transplant"}]"#)?;
    /// let masks = [("labels", ElementType::I64)];
    /// let frame = Frame { rows: 480, columns: 640, bands: 100 };
    /// assert_eq!(pipeline.check(frame, &masks)?, Frame { rows: 64, columns: 64, bands: 100 });
    ///
    /// let small = Frame { rows: 16, columns: 20, bands: 100 };
    /// let error = pipeline.check(small, &masks).unwrap_err();
    /// assert_eq!(error.what(), "random_crop to 64 x 64 is larger than the frame of 16 x 20");
    /// assert_eq!(pipeline.check(frame, &[]).unwrap_err().what(), "transplant needs a mask, but the batch has none");
    /// # Ok::<(), hsipack_format::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that applying would give, or may give.
    pub fn check(&self, frame: Frame, masks: &[(&str, ElementType)]) -> Result<Frame> {
        if [frame.rows, frame.columns, frame.bands].contains(&0) {
            return Err(Error::conflict(format!("images of {frame} cannot be augmented"))
                .with_remedy("give images with no axis of length 0"));
        }
        let mut frames = vec![frame];
        let mut steps = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let before = frames[frames.len() - 1];
            let after = op.frame(before)?;
            if matches!(op, Op::ValidGuard(_)) && before != frame {
                return Err(too_late_to_restore());
            }
            steps.push(Step { op: op.name().to_owned(), drawn: vec![op.trial(before)?] });
            frames.push(after);
        }
        for (name, element) in masks {
            fill_of(self, name, *element)?;
        }
        need_masks(self, masks)?;
        for stage in stages(self) {
            let (first, last) = (stage.ops.start, stage.ops.end);
            task(self, &stage, &steps[first..last], &frames[first..=last])?;
        }
        Ok(frames[frames.len() - 1])
    }
}

//! Loops of our own over the host's memory.

use hsipack_format::{Result, SpectralNorm};

use crate::array::{Array, ElementType};
use crate::engine::{Engine, Held, sealed::Sealed};
use crate::moves::{Job, Move};
use crate::pass::{Blank, ByBand, Cut, Linear, Transplanting};
use crate::prepare::{ImageRecipe, LabelRecipe};

/// (being written)
#[derive(Clone, Debug, Default)]
pub struct Host;

impl Sealed for Host {}

impl Engine for Host {
    type Array = Array;
    type Fields = ();
    type Chosen = ();
    type Lost = ();
    fn look(&self, _: &Array) -> Result<(Vec<usize>, ElementType)> {
        todo!()
    }
    fn hold(&self, _: &Array, _: bool) -> Result<Held<Array>> {
        todo!()
    }
    fn give(&self, _: &Held<Array>, _: bool) -> Result<Array> {
        todo!()
    }
    fn fields(&self, _: &[Move], _: [usize; 2]) -> Result<()> {
        todo!()
    }
    fn place(&self, _: &mut Held<Array>, _: &Job<'_>, _: &()) -> Result<()> {
        todo!()
    }
    fn blank(&self, _: &mut Held<Array>, _: &[Blank], _: Option<i64>) -> Result<()> {
        todo!()
    }
    fn paste(&self, _: &mut Held<Array>, _: &[Cut]) -> Result<()> {
        todo!()
    }
    fn mix(&self, _: &mut Held<Array>, _: &[usize], _: &[f64]) -> Result<()> {
        todo!()
    }
    fn choose(&self, _: &Held<Array>, _: Option<&Held<Array>>, _: &Transplanting) -> Result<()> {
        todo!()
    }
    fn transplant(&self, _: &mut Held<Array>, _: &(), _: &[Option<usize>]) -> Result<()> {
        todo!()
    }
    fn lost(&self, _: &Held<Array>) -> Result<()> {
        todo!()
    }
    fn restore(&self, _: &mut Held<Array>, _: &Held<Array>, _: &()) -> Result<()> {
        todo!()
    }
    fn by_band(&self, _: &mut Held<Array>, _: &[Option<ByBand>]) -> Result<()> {
        todo!()
    }
    fn linear(
        &self,
        _: &mut Held<Array>,
        _: &[Option<Linear>],
        _: Option<(&Held<Array>, &[i64])>,
    ) -> Result<()> {
        todo!()
    }
    fn noise(&self, _: &mut Held<Array>, _: &[Option<u64>], _: f64, _: f64) -> Result<()> {
        todo!()
    }
    fn ramp(&self, _: &mut Held<Array>, _: &[Option<[f64; 2]>]) -> Result<()> {
        todo!()
    }
    fn blur(&self, _: &mut Held<Array>, _: &[Option<[Vec<f64>; 2]>]) -> Result<()> {
        todo!()
    }
    fn normalize(&self, _: &mut Held<Array>, _: SpectralNorm, _: &[bool]) -> Result<()> {
        todo!()
    }
    fn image(&self, _: &Array, _: &ImageRecipe) -> Result<Array> {
        todo!()
    }
    fn labels(&self, _: &Array, _: &LabelRecipe) -> Result<Array> {
        todo!()
    }
}

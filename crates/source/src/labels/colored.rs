//! Masks with a colour for each class.
//!
//! A pixel has the class whose colour it has exactly. A pixel of another colour is an error,
//! because colours between those of two classes come from resizing or lossy compression, and would
//! become wrong labels.

use std::collections::HashMap;
use std::ops::Range;

use hsipack_format::{Color, CubeShape, DType, Error, Opt, Result, colors, remedy};
use serde::{Deserialize, Serialize};

use crate::{Access, CubeInfo, RowBuffer, Source};

/// A class of a coloured mask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassColor {
    /// Its colour.
    pub color: Color,
    /// Its id.
    pub id: u16,
    /// Its name; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A mask of colours as class ids.
struct Colored {
    info: CubeInfo,
    source: Box<dyn Source>,
    ids: HashMap<Color, u16>,
    classes: Vec<ClassColor>,
}

/// The class ids of the colours in `source`.
///
/// # Errors
/// If it is not a picture.
pub(super) fn classes_of(
    source: Box<dyn Source>,
    classes: &[ClassColor],
) -> Result<Box<dyn Source>> {
    let info = source.info();
    let CubeShape { rows, columns, bands } = info.shape;
    if !matches!(info.dtype, DType::U8 | DType::Bool) || !(1..=4).contains(&bands) {
        return Err(Error::unsupported(format!(
            "the mask has {bands} bands of {}, which are not colours",
            info.dtype
        ))
        .at(&info.files[0])
        .with_remedy(remedy![
            "give a picture of grays, RGB or RGBA of 8 bits, or leave out ",
            Opt::MaskColors
        ]));
    }
    let most = classes.iter().map(|class| usize::from(class.id)).max().unwrap_or(0);
    let (mut names, mut class_colors) = (vec![String::new(); most + 1], vec![None; most + 1]);
    for class in classes {
        let id = usize::from(class.id);
        // Several colours may have one id.
        if names[id].is_empty() {
            names[id].clone_from(&class.name);
        }
        class_colors[id].get_or_insert(class.color);
    }
    let has_names = names.iter().any(|name| !name.is_empty());
    let info = CubeInfo {
        class_names: has_names.then_some(names),
        class_colors,
        geo: info.geo.clone(),
        notes: info.notes.clone(),
        files: info.files.clone(),
        ..CubeInfo::new(
            info.format.clone(),
            CubeShape::new(rows, columns, 1),
            DType::U16,
            info.files[0].clone(),
        )
    };
    let ids = classes.iter().map(|class| (class.color, class.id)).collect();
    Ok(Box::new(Colored { info, source, ids, classes: classes.to_vec() }))
}

impl Colored {
    /// The colour of a pixel.
    fn color(&self, pixel: &[u8], position: (usize, usize)) -> Result<Color> {
        let bright = match self.source.info().dtype {
            DType::Bool => 255,
            _ => 1,
        };
        match *pixel {
            [gray] => Ok([gray * bright; 3]),
            [gray, alpha] => self.opaque([gray; 3], alpha, position),
            [red, green, blue] => Ok([red, green, blue]),
            [red, green, blue, alpha] => self.opaque([red, green, blue], alpha, position),
            _ => unreachable!("checked when it was opened"),
        }
    }

    /// The colour of a pixel with an alpha channel.
    fn opaque(&self, color: Color, alpha: u8, (row, column): (usize, usize)) -> Result<Color> {
        if alpha == 255 {
            return Ok(color);
        }
        let what = format!(
            "row {row}, column {column} of the mask is transparent (color {}, alpha {alpha})",
            colors::hex(color)
        );
        Err(Error::unsupported(what)
            .at(&self.info.files[0])
            .with_remedy("save the mask without transparency, with a color for every class"))
    }

    /// The error for a colour that no class has.
    fn unknown(&self, color: Color, (row, column): (usize, usize)) -> Error {
        let distance = |class: &&ClassColor| -> u32 {
            let parts = class.color.iter().zip(color);
            parts.map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
        };
        let [red, green, blue] = color;
        let what = format!(
            "row {row}, column {column} of the mask has the color {red},{green},{blue} ({}), which no class has",
            colors::hex(color)
        );
        let lossy = match self.info.format.as_str() {
            "JPEG" => "JPEG changes colors: save the mask as PNG; ",
            _ => "",
        };
        let nearest = self.classes.iter().min_by_key(distance).map(|class| {
            let [red, green, blue] = class.color;
            let name = if class.name.is_empty() {
                format!("class {}", class.id)
            } else {
                format!("class {} {:?}", class.id, class.name)
            };
            format!("{lossy}the most similar color is {red},{green},{blue} of {name}; ")
        });
        let nearest = nearest.unwrap_or_default();
        Error::conflict(what).at(&self.info.files[0]).with_remedy(remedy![
            nearest,
            "add the color to the file of ",
            Opt::MaskColors,
            ", or save the mask without smoothing or lossy compression"
        ])
    }
}

impl Source for Colored {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        self.source.preferred_rows(budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let mut picture = RowBuffer::new();
        self.source.read_rows(rows.clone(), &mut picture)?;
        let (bands, columns) = (self.source.info().shape.bands, self.info.shape.columns);
        out.reset(DType::U16, rows.len() * columns);
        // Neighbours mostly have the same colour.
        let mut last = None;
        let ids = out.values_mut::<u16>().iter_mut();
        for (at, (id, pixel)) in ids.zip(picture.bytes().chunks_exact(bands)).enumerate() {
            let position = (rows.start + at / columns, at % columns);
            let color = self.color(pixel, position)?;
            *id = match last {
                Some((last_color, id)) if last_color == color => id,
                _ => *self.ids.get(&color).ok_or_else(|| self.unknown(color, position))?,
            };
            last = Some((color, *id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::AxisOrder;
    use crate::flat::{FlatLayout, FlatSource, MemoryBytes};

    fn picture(bands: usize, dtype: DType, values: &[u8]) -> Box<dyn Source> {
        let shape = CubeShape::new(1, values.len() / bands, bands);
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BIP,
            big_endian: false,
            rows_reversed: false,
        };
        let info = CubeInfo::new("JPEG", shape, dtype, "a.jpg");
        Box::new(FlatSource::new(info, layout, MemoryBytes(values.to_vec())))
    }

    fn ids(bands: usize, dtype: DType, values: &[u8]) -> Result<Vec<u16>> {
        let class = |color, id, name: &str| ClassColor { color, id, name: name.to_owned() };
        let classes = [
            class([0; 3], 0, "none"),
            class([255; 3], 300, "roof"),
            class([255, 0, 0], 2, "road"),
            class([250, 0, 0], 2, "lane"),
        ];
        let source = classes_of(picture(bands, dtype, values), &classes)?;
        assert_eq!(source.info().class_colors[2], Some([255, 0, 0]));
        assert_eq!(source.info().class_names.as_ref().unwrap()[2], "road");
        let mut out = RowBuffer::new();
        source.read_rows(0..1, &mut out)?;
        Ok(out.as_slice::<u16>().to_vec())
    }

    #[test]
    fn colours_are_classes() {
        let rgb = [255, 0, 0, 0, 0, 0, 250, 0, 0, 255, 255, 255];
        assert_eq!(ids(3, DType::U8, &rgb).unwrap(), [2, 0, 2, 300]);
        assert_eq!(ids(1, DType::U8, &[0, 255]).unwrap(), [0, 300]);
        assert_eq!(ids(1, DType::Bool, &[1, 0]).unwrap(), [300, 0]);
        assert_eq!(ids(2, DType::U8, &[255, 255, 0, 255]).unwrap(), [300, 0]);
        assert_eq!(ids(4, DType::U8, &[255, 0, 0, 255]).unwrap(), [2]);
    }

    #[test]
    fn other_colours_are_refused_with_their_place() {
        for (bands, values, parts) in [
            (3, &[0, 0, 0, 255, 1, 0][..], ["column 1", "255,1,0 (#ff0100)", "class 2 \"road\""]),
            (4, &[255, 0, 0, 9], ["column 0", "transparent", "without transparency"]),
            (1, &[7], ["column 0", "7,7,7", "JPEG changes colors"]),
        ] {
            let error = ids(bands, DType::U8, values).unwrap_err();
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(error.path(), Some(Path::new("a.jpg")));
        }
        assert!(classes_of(picture(1, DType::I16, &[0, 0]), &[]).is_err());
        assert!(classes_of(picture(5, DType::U8, &[0; 5]), &[]).is_err());
    }
}

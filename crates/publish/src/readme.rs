//! `README.md`: a dataset card as the Hugging Face Hub shows it.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::metadata::Role;
use hsipack_pack::info::StackReport;

use crate::about::About;
use crate::facts::{Band, Companion, Facts, MaskClasses};
use crate::markdown::{bytes, code, count, escaped, number, table, yaml};

/// The name of the picture beside the card.
pub(crate) const PICTURE: &str = "preview.png";

/// Data licences that the Hub knows by a name of its own, and the Hub's name. Others are `other`
/// there.
const HUB_LICENSES: [(&str, &str); 39] = [
    ("apache-2.0", "apache-2.0"),
    ("mit", "mit"),
    ("bsd-2-clause", "bsd-2-clause"),
    ("bsd-3-clause", "bsd-3-clause"),
    ("c-uda-1.0", "c-uda"),
    ("cc0-1.0", "cc0-1.0"),
    ("cc-by-2.0", "cc-by-2.0"),
    ("cc-by-2.5", "cc-by-2.5"),
    ("cc-by-3.0", "cc-by-3.0"),
    ("cc-by-4.0", "cc-by-4.0"),
    ("cc-by-sa-3.0", "cc-by-sa-3.0"),
    ("cc-by-sa-4.0", "cc-by-sa-4.0"),
    ("cc-by-nc-2.0", "cc-by-nc-2.0"),
    ("cc-by-nc-3.0", "cc-by-nc-3.0"),
    ("cc-by-nc-4.0", "cc-by-nc-4.0"),
    ("cc-by-nd-4.0", "cc-by-nd-4.0"),
    ("cc-by-nc-nd-3.0", "cc-by-nc-nd-3.0"),
    ("cc-by-nc-nd-4.0", "cc-by-nc-nd-4.0"),
    ("cc-by-nc-sa-2.0", "cc-by-nc-sa-2.0"),
    ("cc-by-nc-sa-3.0", "cc-by-nc-sa-3.0"),
    ("cc-by-nc-sa-4.0", "cc-by-nc-sa-4.0"),
    ("cdla-sharing-1.0", "cdla-sharing-1.0"),
    ("cdla-permissive-1.0", "cdla-permissive-1.0"),
    ("cdla-permissive-2.0", "cdla-permissive-2.0"),
    ("etalab-2.0", "etalab-2.0"),
    ("eupl-1.1", "eupl-1.1"),
    ("eupl-1.2", "eupl-1.2"),
    ("agpl-3.0-only", "agpl-3.0"),
    ("gpl-2.0-only", "gpl-2.0"),
    ("gpl-3.0-only", "gpl-3.0"),
    ("lgpl-3.0-only", "lgpl-3.0"),
    ("mpl-2.0", "mpl-2.0"),
    ("odbl-1.0", "odbl"),
    ("odc-by-1.0", "odc-by"),
    ("pddl-1.0", "pddl"),
    ("odbl", "odbl"),
    ("odc-by", "odc-by"),
    ("pddl", "pddl"),
    ("unlicense", "unlicense"),
];

/// The card.
pub(crate) fn text(facts: &Facts, about: &About) -> String {
    let mut text = header(facts, about);
    text += &format!("\n# {}\n\n", escaped(&title(facts, about)));
    text += &about.description.clone().unwrap_or_else(|| summary(facts));
    text += &format!("\n\n![Some samples, and spectra]({PICTURE})\n\n## Loading\n\n");
    text += &code("python", &loading(facts, about));
    text += "\n`hsipack` is a Python package. The dataset is a Zarr v3 store, which zarr-python, xarray and TensorStore open, too.\n\n";
    text += "## Contents\n\n";
    text += &contents(facts, about);
    text += &cubes(facts);
    text += &targets(facts);
    text += &images(facts);
    text += &splits(facts);
    facts.masks.iter().for_each(|mask| text += &classes(mask));
    text += &labels(facts);
    text += &boxes(facts);
    text += &location(facts);
    text += &license(about);
    text += &credits(about);
    text += &format!(
        "## Integrity\n\n`hsipack validate {}` compares every byte with its checksum. The fingerprint of this version is\n`{}`.\n",
        facts.folder, facts.report.fingerprint
    );
    text
}

/// The dataset's name for people.
pub(crate) fn title(facts: &Facts, about: &About) -> String {
    let folder = facts.folder.strip_suffix(".hsipack").unwrap_or(&facts.folder);
    about.title.clone().unwrap_or_else(|| folder.to_owned())
}

/// One sentence about the contents.
pub(crate) fn summary(facts: &Facts) -> String {
    let samples = facts.report.samples as u64;
    let mut bands: Vec<usize> = facts.report.stacks.iter().map(|stack| stack.shape[2]).collect();
    bands.sort_unstable();
    bands.dedup();
    let bands: Vec<String> = bands.iter().map(ToString::to_string).collect();
    let cubes = if samples == 1 { "cube" } else { "cubes" };
    let mut text =
        format!("{} hyperspectral {cubes} with {} bands", count(samples), bands.join(", "));
    let ranges = facts.report.stacks.iter().filter_map(|stack| stack.wavelengths.as_ref());
    let range =
        ranges.map(|nm| [nm.min_nm, nm.max_nm]).reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]);
    if let Some([least, most]) = range {
        text += &format!(" from {} to {} nm", number(least), number(most));
    }
    text + "."
}

/// The YAML header.
fn header(facts: &Facts, about: &About) -> String {
    let mut lines = vec!["---".to_owned()];
    let list = |lines: &mut Vec<String>, key: &str, values: &[String]| {
        if !values.is_empty() {
            lines.push(format!("{key}:"));
            lines.extend(values.iter().map(|value| format!("- {}", yaml(value))));
        }
    };
    if let Some(license) = &about.license {
        match hub_license(license) {
            Some(name) => lines.push(format!("license: {name}")),
            None => {
                lines.push("license: other".to_owned());
                lines.push(format!("license_name: {}", yaml(&slug(license))));
                let link = about.license_url.iter();
                lines.extend(link.map(|link| format!("license_link: {}", yaml(link))));
            }
        }
    }
    lines.push(format!("pretty_name: {}", yaml(&title(facts, about))));
    list(&mut lines, "language", &about.languages);
    list(&mut lines, "task_categories", &tasks(facts, about));
    list(&mut lines, "tags", &tags(about));
    let size = size_category(facts.report.samples);
    list(&mut lines, "size_categories", &[size.to_owned()]);
    // The Hub's viewer of tables does not know Zarr.
    lines.push("viewer: false".to_owned());
    lines.push("---\n".to_owned());
    lines.join("\n")
}

/// The Hub's name of a licence.
fn hub_license(license: &str) -> Option<&'static str> {
    let lower = license.trim().to_lowercase();
    HUB_LICENSES.iter().find(|(name, _)| *name == lower).map(|(_, hub)| *hub)
}

/// A name of a licence in lower case without spaces, as the Hub wants it.
fn slug(name: &str) -> String {
    let part = |character: char| !(character.is_alphanumeric() || ".-+".contains(character));
    let lower = name.to_lowercase();
    lower.split(part).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// The tasks that the author named, otherwise those that masks and labels serve.
pub(crate) fn tasks(facts: &Facts, about: &About) -> Vec<String> {
    if !about.tasks.is_empty() {
        return about.tasks.clone();
    }
    let mut tasks = Vec::new();
    if !facts.masks.is_empty() {
        tasks.push("image-segmentation".to_owned());
    }
    if facts.report.boxes.is_some() {
        tasks.push("object-detection".to_owned());
    }
    if !facts.report.labels.is_empty() {
        tasks.push("image-classification".to_owned());
    }
    tasks
}

/// Tags in the header, by which the Hub finds the dataset.
pub(crate) fn tags(about: &About) -> Vec<String> {
    let mut tags = ["hyperspectral", "hsipack", "zarr"].map(str::to_owned).to_vec();
    tags.extend(
        about
            .tags
            .iter()
            .filter(|tag| !["hyperspectral", "hsipack", "zarr"].contains(&tag.as_str()))
            .cloned(),
    );
    tags
}

/// The Hub's name for a number of samples.
fn size_category(samples: usize) -> &'static str {
    match samples {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        _ => "10M<n<100M",
    }
}

/// Three lines of Python that load a sample.
pub(crate) fn loading(facts: &Facts, about: &About) -> String {
    let location = about.location.as_deref().unwrap_or(&facts.folder);
    // A string of JSON is one of Python, too.
    format!(
        "import hsipack\nds = hsipack.open({})\nimage = ds[0][\"image\"]  # (bands, rows, columns)",
        yaml(location)
    )
}

fn contents(facts: &Facts, about: &About) -> String {
    let report = &facts.report;
    let mut rows = vec![["samples".to_owned(), count(report.samples as u64)]];
    let mut row = |name: &str, text: String| {
        if !text.is_empty() {
            rows.push([name.to_owned(), text]);
        }
    };
    row(
        "size",
        format!(
            "{}, {} uncompressed",
            bytes(report.stored_bytes),
            bytes(report.uncompressed_bytes)
        ),
    );
    let sensors: Vec<String> = match about.sensors.is_empty() {
        true => facts.sensors.iter().cloned().collect(),
        false => about.sensors.clone(),
    };
    row("sensors", joined(&sensors));
    row("units of values", joined(&facts.units));
    row("masks", joined(facts.masks.iter().map(|mask| &mask.name)));
    for (heading, role) in [("targets", Role::Target), ("further images", Role::Image)] {
        let names: BTreeSet<_> =
            facts.companions_of(role).map(|(_, companion)| &companion.name).collect();
        row(heading, joined(names));
    }
    let boxes = report.boxes.as_ref();
    row("boxes", boxes.map_or(String::new(), |boxes| count(boxes.boxes as u64)));
    row(
        "groups",
        if report.groups.is_empty() { String::new() } else { count(report.groups.len() as u64) },
    );
    row("columns of samples", joined(facts.columns.keys()));
    row("packed from", joined(&facts.formats));
    row("version", about.version.as_deref().map(escaped).unwrap_or_default());
    table(&["", ""], rows.into_iter().map(Vec::from)) + "\n"
}

fn joined<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    words.into_iter().map(|word| escaped(word)).collect::<Vec<_>>().join(", ")
}

fn cubes(facts: &Facts) -> String {
    let row = |(stack, bands): (&StackReport, &Vec<crate::facts::Band>)| {
        let [rows, columns, _] = stack.shape;
        let range = stack.wavelengths.as_ref().map_or("unknown".to_owned(), |nm| {
            format!("{}–{} nm", number(nm.min_nm), number(nm.max_nm))
        });
        let fwhm = stack.wavelengths.as_ref().and_then(|nm| nm.fwhm_nm);
        let fwhm = fwhm.map_or("unknown".to_owned(), |[least, most]| {
            match number(least) == number(most) {
                true => format!("{} nm", number(least)),
                false => format!("{}–{} nm", number(least), number(most)),
            }
        });
        let bad = bands.iter().filter(|band| band.is_bad).count();
        let bands = match bad {
            0 => bands.len().to_string(),
            bad => format!("{} ({bad} marked as bad)", bands.len()),
        };
        let values = stack.values.as_ref().and_then(|values| values.min.zip(values.max));
        let values = values
            .map_or(String::new(), |(min, max)| format!("{} to {}", number(min), number(max)));
        vec![
            count(stack.samples as u64),
            format!("{rows} × {columns}"),
            bands,
            range,
            fwhm,
            values,
            stack.dtype.to_owned(),
        ]
    };
    let heads =
        ["cubes", "rows × columns", "bands", "wavelengths", "widths (FWHM)", "values", "stored as"];
    let rows = facts.report.stacks.iter().zip(&facts.bands).map(row);
    format!("### Cubes\n\n{}\n", table(&heads, rows))
}

/// Rows × columns of a companion.
fn size(Companion { shape, .. }: &Companion) -> String {
    format!("{} × {}", shape.rows, shape.columns)
}

/// A number of bands or channels, with their names if they are few.
fn named(bands: &[Band]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&String> = bands.iter().filter_map(|band| band.name.as_ref()).collect();
    match names.len() {
        1..=SHOWN => format!("{}: {}", bands.len(), joined(names)),
        _ => bands.len().to_string(),
    }
}

fn unit(companion: &Companion) -> String {
    companion.unit.as_deref().map_or("unknown".to_owned(), escaped)
}

/// The targets of the cubes.
fn targets(facts: &Facts) -> String {
    let row = |(_, target): (&str, &Companion)| {
        vec![
            escaped(&target.name),
            size(target),
            named(&target.bands),
            unit(target),
            target.dtype.to_owned(),
        ]
    };
    let rows: Vec<_> = facts.companions_of(Role::Target).map(row).collect();
    listed("Targets", &["target", "rows × columns", "channels", "unit", "stored as"], rows)
}

/// The further images of the cubes.
fn images(facts: &Facts) -> String {
    let row = |(_, image): (&str, &Companion)| {
        let nm = image.bands.iter().filter_map(|band| band.wavelength_nm);
        let range = nm.map(|nm| [nm, nm]).reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]);
        vec![
            escaped(&image.name),
            size(image),
            image.ratio.to_string(),
            named(&image.bands),
            range.map_or("unknown".to_owned(), |[least, most]| {
                format!("{}–{} nm", number(least), number(most))
            }),
            unit(image),
            image.dtype.to_owned(),
        ]
    };
    let rows: Vec<_> = facts.companions_of(Role::Image).map(row).collect();
    let heads = [
        "image",
        "rows × columns",
        "pixels for a pixel of the cube, along each axis",
        "bands",
        "wavelengths",
        "unit",
        "stored as",
    ];
    listed("Further images", &heads, rows)
}

/// A table with a heading; empty without rows.
fn listed(title: &str, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("### {title}\n\n{}\n", table(heads, rows)),
    }
}

fn splits(facts: &Facts) -> String {
    if facts.report.splits.is_empty() {
        return String::new();
    }
    let rows = facts.report.splits.iter().map(|(name, samples)| {
        let name = if name.is_empty() { "(none)".to_owned() } else { escaped(name) };
        vec![name, count(*samples as u64)]
    });
    format!("### Splits\n\n{}\n", table(&["split", "samples"], rows))
}

fn labels(facts: &Facts) -> String {
    counted("Labels", ["label", "samples"], &facts.report.labels)
}

/// The boxes of each class.
fn boxes(facts: &Facts) -> String {
    let counts = facts.report.boxes.as_ref().map(|boxes| &boxes.labels);
    counts.map_or(String::new(), |counts| counted("Boxes", ["class", "boxes"], counts))
}

/// A table of counts by name; empty without any.
fn counted(title: &str, heads: [&str; 2], counts: &BTreeMap<String, usize>) -> String {
    const SHOWN: usize = 50;
    if counts.is_empty() {
        return String::new();
    }
    let rows = counts.iter().take(SHOWN).map(|(name, number)| {
        let name = if name.is_empty() { "(none)".to_owned() } else { escaped(name) };
        vec![name, count(*number as u64)]
    });
    let more = match counts.len() {
        0..=SHOWN => String::new(),
        all => format!("\nThere are {all} of them.\n"),
    };
    format!("### {title}\n\n{}{more}\n", table(&heads, rows))
}

fn classes(mask: &MaskClasses) -> String {
    const SHOWN: usize = 100;
    let mut splits: Vec<&String> =
        mask.classes.iter().flat_map(|class| class.pixels.splits.keys()).collect();
    splits.sort_unstable();
    splits.dedup();
    let kind = if mask.has_layers { "layer" } else { "class" };
    let with_colors = mask.classes.iter().any(|class| class.color.is_some());
    let mut heads = vec!["id".to_owned(), kind.to_owned()];
    if with_colors {
        heads.push("color".to_owned());
    }
    heads.extend(["pixels".to_owned(), "share".to_owned()]);
    heads.extend(splits.iter().map(|split| format!("pixels in {}", escaped(split))));
    let rows = mask.classes.iter().take(SHOWN).map(|class| {
        let pixels = &class.pixels;
        let mut row =
            vec![pixels.id.to_string(), escaped(pixels.name.as_deref().unwrap_or_default())];
        if with_colors {
            row.push(class.color.clone().unwrap_or_default());
        }
        let share = pixels.pixels as f64 * 100.0 / mask.pixels.max(1) as f64;
        row.extend([count(pixels.pixels), format!("{share:.2} %")]);
        row.extend(
            splits.iter().map(|split| count(pixels.splits.get(*split).copied().unwrap_or(0))),
        );
        row
    });
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let more = match mask.classes.len() {
        0..=SHOWN => String::new(),
        all => format!("\nThere are {all} classes; `hsipack info --count-classes` lists all.\n"),
    };
    let note = if mask.has_layers { "A pixel may be in several layers.\n\n" } else { "" };
    format!("### Mask {}\n\n{note}{}{more}\n", escaped(&mask.name), table(&heads, rows))
}

fn location(facts: &Facts) -> String {
    if facts.report.geo.is_empty() {
        return String::new();
    }
    let rows = facts.report.geo.iter().map(|geo| {
        let crs = geo.crs.as_deref().unwrap_or("unknown");
        let crs = crs.split('"').nth(1).filter(|_| crs.contains('[')).unwrap_or(crs);
        let [width, height] = geo.pixel_size.map(number);
        let unit = geo.unit.map_or("", |unit| unit.symbol());
        vec![escaped(crs), format!("{width} × {height} {unit}"), count(geo.samples as u64)]
    });
    format!("### Location\n\n{}\n", table(&["reference system", "pixel size", "samples"], rows))
}

fn license(about: &About) -> String {
    let text = match (&about.license, &about.license_url) {
        (Some(name), Some(url)) => format!("[{}]({})", escaped(name), address(url)),
        (Some(name), None) => escaped(name),
        (None, Some(url)) => format!("See <{}>.", address(url)),
        (None, None) => {
            "The authors state no license. Ask them before you use the data.".to_owned()
        }
    };
    format!("## License\n\n{text}\n\n")
}

fn credits(about: &About) -> String {
    let mut text = String::new();
    if !about.authors.is_empty() {
        let author = |author: &crate::about::Author| match &author.url {
            Some(url) => format!("- [{}]({})\n", escaped(&author.name), address(url)),
            None => format!("- {}\n", escaped(&author.name)),
        };
        let authors: String = about.authors.iter().map(author).collect();
        text += &format!("## Authors\n\n{authors}\n");
    }
    let doi = about.doi.as_ref().map(|doi| format!("DOI: <https://doi.org/{}>", address(doi)));
    let homepage = about.homepage.as_ref().map(|url| format!("Homepage: <{}>", address(url)));
    let links: Vec<String> = doi.into_iter().chain(homepage).collect();
    if about.citation.is_some() || !links.is_empty() {
        text += "## Citation\n\n";
        if let Some(citation) = &about.citation {
            let language = if citation.trim_start().starts_with('@') { "bibtex" } else { "" };
            text += &format!("{}\n", code(language, citation));
        }
        if !links.is_empty() {
            text += &format!("{}\n\n", links.join("\n\n"));
        }
    }
    text
}

/// An address inside a link.
fn address(url: &str) -> String {
    url.chars()
        .filter(|character| !character.is_whitespace() && !character.is_control())
        .map(|character| match character {
            '<' => "%3C".to_owned(),
            '>' => "%3E".to_owned(),
            '(' => "%28".to_owned(),
            ')' => "%29".to_owned(),
            other => other.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_have_the_names_of_the_hub() {
        assert_eq!(hub_license("CC-BY-4.0"), Some("cc-by-4.0"));
        assert_eq!(hub_license("ODbL-1.0"), Some("odbl"));
        assert_eq!(hub_license("Institute of Optics, research only"), None);
        assert_eq!(slug("Institute of Optics, research only"), "institute-of-optics-research-only");
    }

    #[test]
    fn sizes_have_the_names_of_the_hub() {
        assert_eq!(
            [0, 999, 1_000, 999_999].map(size_category),
            ["n<1K", "n<1K", "1K<n<10K", "100K<n<1M"]
        );
    }
}

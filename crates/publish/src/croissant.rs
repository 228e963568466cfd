//! `croissant.json`: Croissant 1.0, the JSON-LD description of datasets for machine learning.
//!
//! The distribution lists the metadata files with their checksums; the shards, whose chunks have
//! checksums inside, are a set of files. The record sets are the table of samples, which
//! `mlcroissant` reads from `samples.jsonl`, and the bands, classes, targets and further images,
//! whose records are in the description itself.

use hsipack_format::metadata::Role;
use serde_json::{Map, Value, json};

use crate::about::{About, Author};
use crate::facts::{Band, ColumnType, DataFile, Facts, MaskClasses, SUMS};
use crate::readme::{summary, tags, title};

/// The table of samples of a dataset.
const SAMPLES: &str = "samples.jsonl";

/// The description.
pub(crate) fn text(facts: &Facts, about: &About) -> String {
    let mut all = json!({
        "@context": context(),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title(facts, about),
        "description": about.description.clone().unwrap_or_else(|| summary(facts)),
        "keywords": tags(about),
    });
    let keys = all.as_object_mut().expect("an object");
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            keys.insert(key.to_owned(), value);
        }
    };
    // Nothing here is invented: without the author's words, a key is missing.
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let license = about.license_url.as_ref().or(about.license.as_ref());
    put("license", license.map(|license| json!(license)));
    let authors: Vec<Value> = about.authors.iter().map(person).collect();
    put("creator", (!authors.is_empty()).then_some(Value::Array(authors)));
    put("citeAs", text(&about.citation));
    put("url", about.homepage.clone().or_else(|| web_page(about)).map(|url| json!(url)));
    put("identifier", about.doi.as_ref().map(|doi| json!(format!("https://doi.org/{doi}"))));
    put("datePublished", text(&about.published));
    put("version", text(&about.version));
    put("inLanguage", (!about.languages.is_empty()).then(|| json!(about.languages)));
    let base = base(facts, about);
    let mut files: Vec<Value> = facts.files.iter().map(|file| file_object(file, &base)).collect();
    files.push(shards(facts));
    put("distribution", Some(Value::Array(files)));
    let mut sets = vec![samples(facts)];
    sets.extend(bands(facts));
    sets.extend(companions(facts));
    sets.extend(facts.masks.iter().filter(|mask| !mask.classes.is_empty()).map(classes));
    put("recordSet", Some(Value::Array(sets)));
    format!("{all:#}\n")
}

fn person(author: &Author) -> Value {
    let mut person = json!({ "@type": "sc:Person", "name": author.name });
    if let Some(url) = &author.url {
        person["url"] = json!(url);
    }
    person
}

/// The page of a dataset on the Hub, or its own address on a web server.
fn web_page(about: &About) -> Option<String> {
    let location = about.location.as_deref()?;
    match hub(location) {
        Some((name, _, _)) => Some(format!("https://huggingface.co/datasets/{name}")),
        None => location.starts_with("https://").then(|| location.to_owned()),
    }
}

/// `OWNER/NAME`, revision and path of a URL of the Hub.
fn hub(location: &str) -> Option<(String, &str, &str)> {
    let path = location.strip_prefix("hf://datasets/")?;
    let mut parts = path.splitn(3, '/');
    let (owner, name, path) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
    Some((format!("{owner}/{name}"), revision, path.trim_end_matches('/')))
}

/// The path before the name of a file: the dataset's address on a web server, otherwise its folder
/// beside the description.
fn base(facts: &Facts, about: &About) -> String {
    let location = about.location.as_deref().unwrap_or_default().trim_end_matches('/');
    if let Some((name, revision, path)) = hub(location) {
        let path = if path.is_empty() { String::new() } else { format!("{path}/") };
        return format!("https://huggingface.co/datasets/{name}/resolve/{revision}/{path}");
    }
    if location.starts_with("https://") || location.starts_with("http://") {
        return format!("{location}/");
    }
    format!("{}/", facts.folder)
}

fn file_object(file: &DataFile, base: &str) -> Value {
    let format = match file.name.rsplit('/').next().unwrap_or_default() {
        SAMPLES => "application/jsonlines",
        SUMS => "text/plain",
        name if name.ends_with(".json") => "application/json",
        _ => "application/octet-stream",
    };
    let mut object = json!({
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": format!("{base}{}", file.name),
        "encodingFormat": format,
        "sha256": file.sha256,
    });
    if let Some(bytes) = file.bytes {
        object["contentSize"] = json!(format!("{bytes} B"));
    }
    object
}

/// The files with chunks.
fn shards(facts: &Facts) -> Value {
    json!({
        "@type": "cr:FileSet",
        "@id": "shards",
        "name": "shards",
        "description": "Chunks of the Zarr arrays, each with a CRC-32C. hsipack, zarr-python and other Zarr libraries read them.",
        "encodingFormat": "application/octet-stream",
        "includes": format!("{}/*/*/c/**", facts.folder),
    })
}

/// The table of samples.
fn samples(facts: &Facts) -> Value {
    let mut fields = vec![
        ("name".to_owned(), ColumnType::Text, "Unique name of the sample"),
        (
            "stack".to_owned(),
            ColumnType::Text,
            "Rows, columns and bands of its cube: the Zarr group that holds it",
        ),
        ("index".to_owned(), ColumnType::Integer, "Its position in the arrays of the group"),
    ];
    if !facts.report.splits.is_empty() {
        fields.push((
            "split".to_owned(),
            ColumnType::Text,
            "The part of the dataset that it belongs to",
        ));
    }
    if !facts.report.groups.is_empty() {
        fields.push((
            "group".to_owned(),
            ColumnType::Text,
            "What must not be divided among splits",
        ));
    }
    let more = facts.columns.iter().map(|(name, kind)| {
        let about = if name == "label" {
            "Label of the whole cube"
        } else {
            "Column of the authors' table"
        };
        (name.clone(), *kind, about)
    });
    fields.extend(more);
    let field = |(name, kind, about): (String, ColumnType, &str)| {
        let kind = match kind {
            ColumnType::Bool => "sc:Boolean",
            ColumnType::Integer => "sc:Integer",
            ColumnType::Float => "sc:Float",
            ColumnType::Text | ColumnType::Mixed => "sc:Text",
        };
        json!({
            "@type": "cr:Field",
            "@id": format!("samples/{name}"),
            "name": name,
            "description": about,
            "dataType": kind,
            "source": { "fileObject": { "@id": SAMPLES }, "extract": { "column": name } },
        })
    };
    json!({
        "@type": "cr:RecordSet",
        "@id": "samples",
        "name": "samples",
        "description": "One record for each cube.",
        "key": { "@id": "samples/name" },
        "field": fields.into_iter().map(field).collect::<Vec<_>>(),
    })
}

/// A record set whose records are in the description.
fn inline(name: &str, about: &str, fields: &[(&str, &str)], records: &[Vec<Value>]) -> Value {
    let id = |field: &str| format!("{name}/{field}");
    let field = |(field, kind): &(&str, &str)| json!({ "@type": "cr:Field", "@id": id(field), "name": field, "dataType": kind });
    let record = |values: &Vec<Value>| {
        let named = fields.iter().zip(values).map(|((field, _), value)| (id(field), value.clone()));
        Value::Object(named.collect::<Map<String, Value>>())
    };
    json!({
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": about,
        "field": fields.iter().map(field).collect::<Vec<_>>(),
        "data": records.iter().map(record).collect::<Vec<_>>(),
    })
}

/// The bands of each stack and of each further image with known wavelengths.
fn bands(facts: &Facts) -> Vec<Value> {
    let stacks = facts.report.stacks.iter().zip(&facts.bands);
    let cubes = stacks.map(|(stack, bands)| (stack.name.clone(), bands));
    let images = facts.companions_of(Role::Image);
    let images = images.map(|(stack, image)| (format!("{stack}_{}", image.name), &image.bands));
    let is_known =
        |(_, bands): &(String, &Vec<Band>)| bands.iter().any(|band| band.wavelength_nm.is_some());
    let all = cubes.chain(images).filter(is_known);
    all.map(|(name, bands)| bands_of(&format!("bands_{name}"), bands)).collect()
}

fn bands_of(name: &str, bands: &[Band]) -> Value {
    let has_widths = bands.iter().all(|band| band.fwhm_nm.is_some());
    let mut fields =
        vec![("band", "sc:Integer"), ("wavelength_nm", "sc:Float"), ("is_bad", "sc:Boolean")];
    if has_widths {
        fields.push(("fwhm_nm", "sc:Float"));
    }
    let records: Vec<Vec<Value>> = (0..)
        .zip(bands)
        .filter(|(_, band)| band.wavelength_nm.is_some())
        .map(|(number, band): (usize, _)| {
            vec![json!(number), json!(band.wavelength_nm), json!(band.is_bad), json!(band.fwhm_nm)]
        })
        .collect();
    inline(name, "Bands of the images of this shape, counted from 0.", &fields, &records)
}

/// The targets and the further images of each stack.
fn companions(facts: &Facts) -> Vec<Value> {
    let kinds = [
        (
            Role::Target,
            "targets",
            "Floats for each pixel of the cubes; NaN where they are missing.",
        ),
        (
            Role::Image,
            "images",
            "Further images of the ground of the cubes. The ratio is their pixels for a pixel of the cube, along each axis.",
        ),
    ];
    let set = |(role, name, about): (Role, &str, &str)| {
        let channels = format!("{}s", role.bands());
        let mut fields = vec![
            ("name", "sc:Text"),
            ("stack", "sc:Text"),
            ("rows", "sc:Integer"),
            ("columns", "sc:Integer"),
            (channels.as_str(), "sc:Integer"),
            ("dtype", "sc:Text"),
            ("unit", "sc:Text"),
        ];
        if role == Role::Image {
            fields.push(("ratio", "sc:Text"));
        }
        let records: Vec<Vec<Value>> = facts
            .companions_of(role)
            .map(|(stack, companion)| {
                vec![
                    json!(companion.name),
                    json!(stack),
                    json!(companion.shape.rows),
                    json!(companion.shape.columns),
                    json!(companion.shape.bands),
                    json!(companion.dtype),
                    json!(companion.unit.as_deref().unwrap_or_default()),
                    json!(companion.ratio.to_string()),
                ]
            })
            .collect();
        (!records.is_empty()).then(|| inline(name, about, &fields, &records))
    };
    kinds.into_iter().filter_map(set).collect()
}

/// The classes of a mask.
fn classes(mask: &MaskClasses) -> Value {
    let records: Vec<Vec<Value>> = mask
        .classes
        .iter()
        .map(|class| {
            let name = class.pixels.name.clone().unwrap_or_else(|| class.pixels.id.to_string());
            let color = class.color.clone().unwrap_or_default();
            vec![json!(class.pixels.id), json!(name), json!(class.pixels.pixels), json!(color)]
        })
        .collect();
    let about = match mask.has_layers {
        true => "Layers of the mask, which may overlap, and the pixels of each.",
        false => "Class ids of the mask, and the pixels of each.",
    };
    let mut fields = vec![("id", "sc:Integer"), ("name", "sc:Text"), ("pixels", "sc:Integer")];
    if mask.classes.iter().any(|class| class.color.is_some()) {
        fields.push(("color", "sc:Text"));
    }
    inline(&format!("classes_{}", mask.name), about, &fields, &records)
}

/// The context that Croissant 1.0 prescribes.
fn context() -> Value {
    json!({
        "@language": "en",
        "@vocab": "https://schema.org/",
        "citeAs": "cr:citeAs",
        "column": "cr:column",
        "conformsTo": "dct:conformsTo",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "data": { "@id": "cr:data", "@type": "@json" },
        "dataType": { "@id": "cr:dataType", "@type": "@vocab" },
        "dct": "http://purl.org/dc/terms/",
        "equivalentProperty": "cr:equivalentProperty",
        "examples": { "@id": "cr:examples", "@type": "@json" },
        "extract": "cr:extract",
        "field": "cr:field",
        "fileProperty": "cr:fileProperty",
        "fileObject": "cr:fileObject",
        "fileSet": "cr:fileSet",
        "format": "cr:format",
        "includes": "cr:includes",
        "isLiveDataset": "cr:isLiveDataset",
        "jsonPath": "cr:jsonPath",
        "key": "cr:key",
        "md5": "cr:md5",
        "parentField": "cr:parentField",
        "path": "cr:path",
        "recordSet": "cr:recordSet",
        "references": "cr:references",
        "regex": "cr:regex",
        "repeated": "cr:repeated",
        "replace": "cr:replace",
        "samplingRate": "cr:samplingRate",
        "sc": "https://schema.org/",
        "separator": "cr:separator",
        "source": "cr:source",
        "subField": "cr:subField",
        "transform": "cr:transform",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_hub_have_three_parts() {
        let (name, revision, path) = hub("hf://datasets/ada/leaves@v1/a/leaves.hsipack/").unwrap();
        assert_eq!((name.as_str(), revision, path), ("ada/leaves", "v1", "a/leaves.hsipack"));
        let (_, revision, path) = hub("hf://datasets/ada/leaves").unwrap();
        assert_eq!((revision, path), ("main", ""));
        assert!(hub("https://example.org/ada/leaves").is_none());
    }
}

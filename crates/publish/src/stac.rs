//! `stac/`: a STAC 1.1 collection with an item for each cube that has a place and a time.
//!
//! Links are relative, so that the folder can be copied. Positions of pixels are those of the
//! extension `proj`, centres and widths of bands those of `eo`, in micrometres.

use hsipack_format::metadata::Role;
use serde_json::{Map, Value, json};

use crate::about::{About, in_order};
use crate::facts::{Band, Companion, Facts};
use crate::footprints::{Footprint, Time, extent};
use crate::readme::{summary, tags, title};

const VERSION: &str = "1.1.0";
const PROJECTION: &str = "https://stac-extensions.github.io/projection/v2.0.0/schema.json";
const BANDS: &str = "https://stac-extensions.github.io/eo/v2.0.0/schema.json";
const SCIENTIFIC: &str = "https://stac-extensions.github.io/scientific/v1.0.0/schema.json";
/// The type of Zarr stores.
const ZARR: &str = "application/vnd+zarr; version=3";
/// The folder of the catalogue, beside the card.
const FOLDER: &str = "stac";

/// Paths and texts of the files; empty if no cube has a place and a time.
pub(crate) fn files(facts: &Facts, about: &About) -> Vec<(String, String)> {
    let footprints = &facts.footprints.items;
    if footprints.is_empty() {
        return Vec::new();
    }
    let written = |value: &Value| format!("{value:#}\n");
    let mut files = vec![(format!("{FOLDER}/collection.json"), written(&collection(facts, about)))];
    let items = footprints.iter().map(|footprint| {
        (format!("{FOLDER}/{}", item_path(footprint)), written(&item(footprint, facts, about)))
    });
    files.extend(items);
    files
}

/// The path of an item, from the collection.
fn item_path(footprint: &Footprint) -> String {
    format!("items/{:06}.json", footprint.id)
}

/// The identifier of the collection: the folder's name, without characters that addresses do not
/// have.
fn collection_id(facts: &Facts) -> String {
    let folder = facts.folder.strip_suffix(".hsipack").unwrap_or(&facts.folder);
    let plain = |character: char| {
        if character.is_alphanumeric() || "-_.".contains(character) { character } else { '-' }
    };
    folder.chars().map(plain).collect()
}

fn collection(facts: &Facts, about: &About) -> Value {
    let boxes: Vec<[f64; 4]> = facts.footprints.items.iter().map(bounds).collect();
    let whole = boxes
        .iter()
        .copied()
        .reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1]), a[2].max(b[2]), a[3].max(b[3])]);
    let mut times: Vec<&String> = Vec::new();
    for footprint in &facts.footprints.items {
        match &footprint.time {
            Time::At(time) => times.push(time),
            Time::Between(start, end) => times.extend([start, end]),
        }
    }
    times.sort_unstable_by_key(|time| in_order(time));
    let mut links = vec![
        json!({ "rel": "root", "href": "./collection.json", "type": "application/json" }),
        json!({ "rel": "self", "href": "./collection.json", "type": "application/json" }),
    ];
    links.extend(about.license_url.iter().map(|url| json!({ "rel": "license", "href": url })));
    links.extend(facts.footprints.items.iter().map(|footprint| {
        let href = format!("./{}", item_path(footprint));
        json!({ "rel": "item", "href": href, "type": "application/geo+json", "title": footprint.name })
    }));
    // STAC needs a licence. `other` says that there is no SPDX identifier, which also holds if there is none at all.
    let is_spdx = |name: &&String| {
        let part = |character: char| character.is_ascii_alphanumeric() || "-.+".contains(character);
        name.chars().all(part)
    };
    let license = about.license.as_ref().filter(is_spdx).map_or("other", String::as_str);
    let mut all = json!({
        "type": "Collection",
        "stac_version": VERSION,
        "stac_extensions": [],
        "id": collection_id(facts),
        "title": title(facts, about),
        "description": about.description.clone().unwrap_or_else(|| summary(facts)),
        "keywords": tags(about),
        "license": license,
        "extent": {
            "spatial": { "bbox": [whole] },
            "temporal": { "interval": [[times.first(), times.last()]] },
        },
        "links": links,
    });
    let providers: Vec<Value> = about
        .authors
        .iter()
        .map(|author| {
            let mut provider = json!({ "name": author.name, "roles": ["producer"] });
            if let Some(url) = &author.url {
                provider["url"] = json!(url);
            }
            provider
        })
        .collect();
    if !providers.is_empty() {
        all["providers"] = Value::Array(providers);
    }
    if about.doi.is_some() || about.citation.is_some() {
        all["stac_extensions"] = json!([SCIENTIFIC]);
        if let Some(doi) = &about.doi {
            all["sci:doi"] = json!(doi);
            let cite = json!({ "rel": "cite-as", "href": format!("https://doi.org/{doi}") });
            all["links"].as_array_mut().expect("a list").push(cite);
        }
        if let Some(citation) = &about.citation {
            all["sci:citation"] = json!(citation);
        }
    }
    all
}

/// West, south, east and north.
fn bounds(footprint: &Footprint) -> [f64; 4] {
    let [west, east] = extent(&footprint.corners.map(|corner| corner[0]));
    let [south, north] = extent(&footprint.corners.map(|corner| corner[1]));
    [west, south, east, north]
}

fn item(footprint: &Footprint, facts: &Facts, about: &About) -> Value {
    let stack = &facts.report.stacks[footprint.stack];
    let [rows, columns, _] = stack.shape;
    let [x, a, b, y, d, e] = footprint.geo.transform;
    let mut properties = Map::new();
    let mut put = |key: &str, value: Value| drop(properties.insert(key.to_owned(), value));
    put("title", json!(footprint.name));
    match &footprint.time {
        Time::At(time) => put("datetime", json!(time)),
        Time::Between(start, end) => {
            put("datetime", Value::Null);
            put("start_datetime", json!(start));
            put("end_datetime", json!(end));
        }
    }
    let sensors: Vec<&String> = match about.sensors.is_empty() {
        true => facts.sensors.iter().collect(),
        false => about.sensors.iter().collect(),
    };
    if let [sensor] = sensors.as_slice() {
        put("instruments", json!([sensor]));
    }
    // Systems that are only known as WKT 1 have no code; the extension takes WKT 2.
    put("proj:code", json!(footprint.geo.epsg().map(|code| format!("EPSG:{code}"))));
    put("proj:shape", json!([rows, columns]));
    put("proj:transform", json!([a, b, x, d, e, y]));
    let mut corners = footprint.corners.to_vec();
    corners.push(corners[0]);
    let to_dataset = format!("../../{}", facts.folder);
    let number = footprint.index;
    let mut assets = Map::new();
    let mut cube = json!({
        "href": format!("{to_dataset}/{}/image", stack.name),
        "type": ZARR,
        "title": "hyperspectral cube",
        "description": format!("Position {number} of the first axis"),
        "roles": ["data"],
        "data_type": stack.dtype,
        "bands": bands(&facts.bands[footprint.stack]),
    });
    if let [unit] = facts.units.iter().collect::<Vec<_>>().as_slice() {
        cube["unit"] = json!(unit);
    }
    assets.insert("image".to_owned(), cube);
    for mask in &stack.masks {
        let asset = json!({
            "href": format!("{to_dataset}/{}/{}", stack.name, mask.name),
            "type": ZARR,
            "title": format!("mask {}", mask.name),
            "description": format!("Position {number} of the first axis"),
            "roles": ["labels"],
        });
        assets.insert(format!("mask_{}", mask.name), asset);
    }
    for companion in &facts.companions[footprint.stack] {
        let href = format!("{to_dataset}/{}/{}", stack.name, companion.name);
        let key = format!("{}_{}", companion.role.name(), companion.name);
        assets.insert(key, companion_asset(companion, footprint, href));
    }
    json!({
        "type": "Feature",
        "stac_version": VERSION,
        "stac_extensions": [PROJECTION, BANDS],
        "id": format!("{}-{:06}", collection_id(facts), footprint.id),
        "collection": collection_id(facts),
        "geometry": { "type": "Polygon", "coordinates": [corners] },
        "bbox": bounds(footprint),
        "properties": properties,
        "links": [
            { "rel": "root", "href": "../collection.json", "type": "application/json" },
            { "rel": "parent", "href": "../collection.json", "type": "application/json" },
            { "rel": "collection", "href": "../collection.json", "type": "application/json" },
            { "rel": "self", "href": format!("./{:06}.json", footprint.id), "type": "application/geo+json" },
        ],
        "assets": assets,
    })
}

/// The asset of a target or a further image, whose pixels may be larger or smaller than those of
/// the cube.
fn companion_asset(companion: &Companion, footprint: &Footprint, href: String) -> Value {
    let Companion { name, role, shape, ratio, .. } = companion;
    let mut asset = json!({
        "href": href,
        "type": ZARR,
        "title": format!("{} {name}", role.words()),
        "description": format!("Position {} of the first axis", footprint.index),
        "roles": [if *role == Role::Target { "labels" } else { "data" }],
        "data_type": companion.dtype,
        "bands": bands(&companion.bands),
    });
    if let Some(unit) = &companion.unit {
        asset["unit"] = json!(unit);
    }
    if !ratio.is_same() {
        let [x, a, b, y, d, e] = footprint.geo.transform;
        let [a, b, d, e] = [a, b, d, e].map(|step| step / ratio.factor());
        asset["proj:shape"] = json!([shape.rows, shape.columns]);
        asset["proj:transform"] = json!([a, b, x, d, e, y]);
    }
    asset
}

/// Bands, with centres and widths in µm.
fn bands(bands: &[Band]) -> Vec<Value> {
    let micrometres = |nm: f64| json!((nm * 1e3).round() / 1e6);
    (0..)
        .zip(bands)
        .map(|(number, band): (usize, _)| {
            let name = band.name.clone().unwrap_or_else(|| format!("band {number}"));
            let mut all = json!({ "name": name });
            if let Some(nm) = band.wavelength_nm {
                all["eo:center_wavelength"] = micrometres(nm);
            }
            if let Some(nm) = band.fwhm_nm {
                all["eo:full_width_half_max"] = micrometres(nm);
            }
            all
        })
        .collect()
}

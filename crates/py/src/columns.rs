//! Values of many samples, by columns.

use hsipack_format::Samples;
use hsipack_format::samples::Sample;
use hsipack_read::Result;
use serde::Serialize;
use serde_json::{Value, to_writer};

/// Columns of samples, each as the text of a JSON list.
pub struct Columns<'a> {
    samples: &'a Samples,
    names: &'a [String],
    texts: Vec<Vec<u8>>,
}

impl<'a> Columns<'a> {
    /// The columns `names` of the samples `ids`, which must exist, as one list of lists.
    ///
    /// # Errors
    /// If a line must be read but cannot be.
    pub fn read(samples: &'a Samples, ids: &[usize], names: &'a [String]) -> Result<String> {
        let texts = vec![b"[".to_vec(); names.len()];
        let mut columns = Self { samples, names, texts };
        let lines_are_read = names.iter().any(|name| !is_indexed(name));
        for (index, id) in ids.iter().enumerate() {
            if index > 0 {
                columns.texts.iter_mut().for_each(|text| text.push(b','));
            }
            let sample = match lines_are_read {
                true => Some(samples.get(*id)?),
                false => None,
            };
            columns.add(*id, sample.as_ref());
        }
        columns.texts.iter_mut().for_each(|text| text.push(b']'));
        let all = [b"[".as_slice(), &columns.texts.join(&b','), b"]"].concat();
        Ok(String::from_utf8(all).expect("JSON is written as UTF-8"))
    }

    /// Adds a sample, with the contents of its line if that was read.
    fn add(&mut self, id: usize, sample: Option<&Sample>) {
        let samples = self.samples;
        for (name, text) in self.names.iter().zip(&mut self.texts) {
            match (name.as_str(), &sample) {
                ("id", _) => write(&id, text),
                ("name", _) => write(samples.name(id), text),
                ("stack", _) => write(samples.stack_name(id), text),
                ("index", _) => write(&samples.index(id), text),
                ("split", _) => write(&samples.splits().get(id), text),
                ("group", _) => write(&samples.groups().get(id), text),
                ("label", _) => write(&samples.labels().get(id), text),
                ("nan", Some(sample)) => write(&sample.nan, text),
                ("inf", Some(sample)) => write(&sample.inf, text),
                ("range", Some(sample)) => write(&sample.range, text),
                ("geo", Some(sample)) => write(&sample.geo, text),
                ("source", Some(sample)) => write(&sample.source, text),
                (name, Some(sample)) => {
                    write(sample.columns.get(name).unwrap_or(&Value::Null), text)
                }
                (_, None) => write(&Value::Null, text),
            }
        }
    }
}

/// Whether a column can be read from the index, without reading lines.
fn is_indexed(name: &str) -> bool {
    ["id", "name", "stack", "index", "split", "group", "label"].contains(&name)
}

fn write<T: Serialize + ?Sized>(value: &T, text: &mut Vec<u8>) {
    to_writer(text, value).expect("samples have string keys and finite numbers");
}

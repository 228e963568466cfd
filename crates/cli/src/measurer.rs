//! The program that measures on a device: this program on the CPU, a Python with torch on GPUs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_measure::device::TrainingLibrary;
use hsipack_measure::remote::{Process, Request};
use hsipack_read::augment::Host;

/// The variable with the path of the Python whose package hsipack measures on GPUs. The package's
/// entry point sets it.
const PYTHON: &str = "HSIPACK_PYTHON";

/// The program that measures on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// This program.
    This,
    /// The package hsipack in a Python.
    Python(PathBuf),
}

impl Program {
    /// The program for the device of that name. `in_python` asks for Python on any device; tests
    /// use it.
    ///
    /// # Errors
    /// If there is no such device, or a Python is needed and none is known.
    pub fn of(device: &str, in_python: bool) -> Result<Self> {
        Self::choose(device, in_python, std::env::var_os(PYTHON))
    }

    fn choose(device: &str, in_python: bool, python: Option<OsString>) -> Result<Self> {
        let here = Host::new(1).named(device);
        let python =
            python.filter(|python| !python.is_empty()).map(|path| Self::Python(path.into()));
        match (here, python) {
            (Ok(_), _) if !in_python => Ok(Self::This),
            // The name means no device at all; it is not just a device that this library lacks.
            (Err(error), _) if hsipack_measure::device::parse(device).is_err() => Err(error),
            (_, Some(python)) => Ok(python),
            (Err(error), None) => Err(error.or_remedy(set_python())),
            (Ok(_), None) => {
                Err(Error::conflict(format!("{PYTHON} is not set")).with_remedy(set_python()))
            }
        }
    }

    /// Gives a function that makes the command for a process that measures.
    ///
    /// # Errors
    /// If this program cannot be found.
    pub fn command(&self) -> Result<impl Fn() -> Command> {
        let this = std::env::current_exe()
            .map_err(|error| Error::io("hsipack", "cannot find this program", error))?;
        let program = self.clone();
        Ok(move || match &program {
            Self::This => {
                let mut command = Command::new(&this);
                command.args(["bench", "--measure"]);
                command
            }
            Self::Python(python) => {
                let mut command = Command::new(python);
                command.args(["-m", "hsipack._measure", env!("CARGO_PKG_VERSION")]);
                // Otherwise a file torch.py in the working folder would be imported.
                command.env("PYTHONSAFEPATH", "1");
                command
            }
        })
    }

    /// Starts a process that measures on the device of that name, and checks that it has the
    /// device.
    ///
    /// # Errors
    /// If it cannot be started, or has no such device.
    pub fn start(&self, device: &str, stop: &AtomicBool) -> Result<Process> {
        let found = Process::start(&mut self.command()?()).and_then(|mut process| {
            process.ask::<String>(&Request::Device(device.to_owned()), stop)?;
            Ok(process)
        });
        found.map_err(|error| self.explained(error))
    }

    /// Adds to an error of the process what to do if the Python has no package hsipack.
    pub fn explained(&self, error: Error) -> Error {
        match self {
            Self::Python(_) if error.kind() == ErrorKind::Io => error.or_remedy(set_python()),
            _ => error,
        }
    }
}

fn set_python() -> String {
    format!(
        "set {PYTHON} to the path of a python that has hsipack {} and torch",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(device: &str, in_python: bool, python: Option<&str>) -> Result<Program> {
        Program::choose(device, in_python, python.map(OsString::from))
    }

    #[test]
    fn the_cpu_is_this_programs_and_gpus_are_pythons() {
        let python = Program::Python("/p/python".into());
        for device in ["auto", "cpu"] {
            assert_eq!(chosen(device, false, None).unwrap(), Program::This);
            assert_eq!(chosen(device, false, Some("/p/python")).unwrap(), Program::This);
            assert_eq!(chosen(device, true, Some("/p/python")).unwrap(), python);
        }
        for device in ["cuda", "cuda:3"] {
            assert_eq!(chosen(device, false, Some("/p/python")).unwrap(), python);
        }
    }

    #[test]
    fn a_missing_python_is_an_error_with_a_remedy() {
        for python in [None, Some("")] {
            let error = chosen("cuda:1", false, python).unwrap_err().to_string();
            for part in ["device cuda:1", "device=cpu", "pip install 'hsipack[torch]'", PYTHON] {
                assert!(error.contains(part), "{part}: {error}");
            }
            assert!(chosen("cpu", true, python).unwrap_err().to_string().contains(PYTHON));
        }
        let error = chosen("tpu", false, Some("/p/python")).unwrap_err().to_string();
        assert!(error.contains("no device is named tpu") && !error.contains(PYTHON), "{error}");
    }

    #[test]
    fn programs_are_started_with_what_makes_them_measure() {
        let words = |program: Program| {
            let command = program.command().unwrap()();
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(Program::This), ["bench", "--measure"]);
        let python = words(Program::Python("/p/python".into()));
        assert_eq!(python, ["-m", "hsipack._measure", env!("CARGO_PKG_VERSION")]);
    }

    #[test]
    fn a_python_without_the_package_is_explained() {
        let python = Program::Python("./no-such-python".into());
        let error = python.start("cuda", &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(
            error.starts_with("./no-such-python: cannot run") && error.contains(PYTHON),
            "{error}"
        );
        let other = python.explained(Error::device("out of memory")).to_string();
        assert_eq!(other, "out of memory");
    }
}

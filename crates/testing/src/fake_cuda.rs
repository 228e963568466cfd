//! Runs programs over the stand-in for the CUDA driver (`crates/testing/fake-cuda`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The variable that names the library, if it should not be built.
const LIBRARY: &str = "HSIPACK_FAKE_CUDA";

/// The name of a function that the library has only if it can run kernels.
const KERNELS: &[u8] = b"fake_cuda_runs_kernels";

/// Runs programs that find the stand-in instead of the driver, and reports their faults. All
/// programs of one `FakeCuda` share a report.
pub struct FakeCuda {
    /// Contains the library under the driver's names, and the report.
    folder: TempDir,
}

impl FakeCuda {
    /// The exit status of a program that had faults.
    pub const FAULTS: i32 = 86;

    /// Prepares the library: the file that the variable `HSIPACK_FAKE_CUDA` names; otherwise cargo
    /// builds it.
    ///
    /// # Panics
    /// If the library is missing or cannot be built.
    #[expect(clippy::new_without_default, reason = "it builds a library")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["libcuda.so", "libcuda.so.1"] {
            std::os::unix::fs::symlink(library(), folder.path().join(name)).expect("a link");
        }
        Self { folder }
    }

    /// A command that runs a program over the stand-in.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut folders = self.folder.path().as_os_str().to_owned();
        if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
            folders.push(OsString::from(":"));
            folders.push(others);
        }
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", folders)
            .env("FAKE_CUDA_REPORT", self.report())
            .env("FAKE_CUDA_EXIT_STATUS", Self::FAULTS.to_string());
        command
    }

    /// A command that runs an `#[ignore]`d test of the calling program in its own process.
    ///
    /// # Panics
    /// If the path of the calling program is unknown.
    pub fn test(&self, name: &str) -> Command {
        let mut command = self.command(env::current_exe().expect("this program"));
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        command
    }

    /// Whether programs can load kernels: the library was built with a C++ compiler.
    ///
    /// # Panics
    /// If the library cannot be read.
    pub fn has_kernels() -> bool {
        let library = fs::read(library()).expect("the library");
        library.windows(KERNELS.len()).any(|bytes| bytes == KERNELS)
    }

    /// The faults of all programs so far, such as
    /// `[leak] exit: 1 event(s) not given back (process 123)`.
    pub fn faults(&self) -> Vec<String> {
        let report = self.read_report();
        report.lines().filter_map(|line| line.strip_prefix("fault ")).map(str::to_owned).collect()
    }

    /// Runs a command. It must use the stand-in, succeed, and have no faults.
    ///
    /// # Panics
    /// If the command does not meet these conditions.
    pub fn assert_clean(&self, command: &mut Command) {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let report = self.read_report();
        let clean = report.contains("end: 0 faults") && self.faults().is_empty();
        assert!(output.status.success() && clean, "{report}\n{output:?}");
    }

    fn report(&self) -> PathBuf {
        self.folder.path().join("report")
    }

    fn read_report(&self) -> String {
        fs::read_to_string(self.report()).unwrap_or_default()
    }
}

fn library() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| env::var_os(LIBRARY).map_or_else(build, PathBuf::from))
}

/// Builds the library, and returns its path.
fn build() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--quiet", "--package", "hsipack-fake-cuda"]);
    // Build in the workspace, so that the settings of all other builds apply.
    let cargo = cargo.arg("--message-format=json").current_dir(workspace);
    let output = cargo.output().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
    let messages = String::from_utf8_lossy(&output.stdout);
    let path = messages.split('"').find(|part| part.ends_with("/libhsipack_fake_cuda.so"));
    match path {
        Some(path) if output.status.success() => PathBuf::from(path),
        _ => panic!("{cargo:?}: {messages}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

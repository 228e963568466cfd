//! The kernels for GPUs, tested without a GPU: their source is compiled as C++ and run in loops,
//! instead of libtorch's operations on the CPU. They must keep the contract of augmentations, too.
//! `engines.rs` compares them with the host's loops.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use hsipack_augment::array::Stream;
use hsipack_augment::kernels::Launcher;
use hsipack_augment::{Array, Augmented, Images, Library, Parameters, Pipeline, TensorEngine};
use hsipack_format::{Error, Result};
use hsipack_torch::{Libtorch, Operations};

const SOURCE: &str = "../augment/src/kernels/kernels.cu";

/// Kernels in a library that was compiled from their source.
struct OnHost {
    library: usize,
    /// The names of kernels that ran.
    ran: Mutex<Vec<String>>,
}

impl Launcher for OnHost {
    unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 2],
        arguments: &mut [*mut c_void; 4],
        _: Stream,
    ) -> Result<()> {
        let name = CString::new(kernel).unwrap();
        // SAFETY: the library is loaded, and the name ends with NUL.
        let function = unsafe { libc::dlsym(self.library as *mut c_void, name.as_ptr()) };
        if function.is_null() {
            return Err(Error::bug(format!("there is no kernel {kernel}")));
        }
        self.ran.lock().unwrap().push(kernel.to_owned());
        type Kernel = unsafe extern "C" fn(*const u32, *mut *mut c_void);
        // SAFETY: this is how `kernels.cu` declares kernels on the host.
        let function: Kernel = unsafe { std::mem::transmute(function) };
        // SAFETY: the caller's promise.
        unsafe { function(grid.as_ptr(), arguments.as_mut_ptr()) };
        Ok(())
    }
}

fn on_host() -> &'static Arc<OnHost> {
    static KERNELS: OnceLock<Arc<OnHost>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("kernels.so");
        let target = "x86_64-unknown-linux-gnu";
        let compiler = cc::Build::new()
            .cpp(true)
            .std("c++17")
            .pic(true)
            .opt_level(1)
            .target(target)
            .host(target)
            .cargo_metadata(false)
            .get_compiler();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCE);
        let done = compiler
            .to_command()
            .args(["-x", "c++", "-mf16c", "-shared", "-DHSIPACK_ON_HOST", "-Wall", "-Wextra"])
            .args(["-Werror", "-Wno-unknown-pragmas", "-ffp-contract=off", "-o"])
            .args([library.as_path(), source.as_path()])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: a library that does nothing when it is loaded; it stays, as the handle does.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Arc::new(OnHost { library: library as usize, ran: Mutex::default() })
    })
}

/// A launcher that runs the kernels.
pub fn launcher() -> Arc<dyn Launcher> {
    on_host().clone()
}

/// Applies a pipeline on the CPU, as on a GPU with kernels.
pub fn apply(
    pipeline: &Pipeline,
    images: &Images<Array>,
    parameters: &Parameters,
    threads: usize,
) -> Result<Augmented<Array>> {
    let libtorch = Libtorch::new(threads);
    let images = images.clone().of(|array| libtorch.tensor(array))?;
    let operations = Operations::on(tch::Device::Cpu).with_launcher(Some(launcher()));
    let augmented = pipeline.apply(&TensorEngine(operations), &images, parameters)?;
    augmented.of(|tensor| libtorch.array(&tensor))
}

crate::contract! { apply }

#[test]
fn kernels_do_the_work() {
    use crate::contract::pipeline;
    use hsipack_augment::{ElementType, Frame, SampleKey};

    let ops = [
        serde_json::json!({"op": "affine", "degrees": 30, "p": 1}),
        serde_json::json!({"op": "gaussian_blur", "kernel": [3, 5], "p": 1}),
        serde_json::json!({"op": "gain", "range": [0.5, 2]}),
        serde_json::json!({"op": "erase", "p": 1}),
        serde_json::json!({"op": "jigsaw", "grid": [3, 2], "p": 1}),
    ];
    let pipeline = pipeline(&ops, 3);
    let keys: Vec<SampleKey> = (0..60).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let frame = Frame { rows: 9, columns: 8, bands: 10 };
    let parameters = pipeline.draw(frame, 0, &keys).unwrap();
    let numbers: Vec<f64> = (0..60 * 9 * 8 * 10).map(|number| f64::from(number % 7)).collect();
    let image = Array::of_numbers(&numbers, &[60, 9, 8, 10], ElementType::F16).unwrap();
    let images = Images::new(image.permuted(&[0, 3, 1, 2]), Vec::new());
    apply(&pipeline, &images, &parameters, 1).unwrap();
    let ran = on_host().ran.lock().unwrap();
    for kernel in
        ["warp_f16_2", "blur_f16_f32_2", "blur_f32_f16_2", "by_band_f16_2", "blank_4", "paste_4"]
    {
        assert!(ran.iter().any(|other| other == kernel), "{kernel}: {ran:?}");
    }
}

#[test]
fn rectangles_without_pixels_change_nothing() {
    // Rows, columns and vectors; then each rectangle's place, height, width and where its values come from.
    let frame = [2i32, 3, 1];
    let rectangles: [i32; 24] =
        [0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 0, 1, 2, 0, 0, 1, 0, 0, 0, 0, 3, 0, 0, 0];
    for (kernel, changed) in [("blank_4", [1.0f32, 1.0]), ("paste_4", [2.0, 3.0])] {
        let from = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut into = [0.0f32; 6];
        let addresses =
            [from.as_ptr().cast_mut(), into.as_mut_ptr()].map(<*mut f32>::cast::<c_void>);
        let numbers = rectangles.as_ptr().cast_mut().cast::<c_void>();
        let mut pointers = [addresses[0], addresses[1], numbers];
        let [from_at, into_at, numbers_at] = pointers.each_mut().map(std::ptr::from_mut);
        let mut arguments = [
            std::ptr::from_ref(&frame).cast_mut().cast(),
            from_at.cast(),
            into_at.cast(),
            numbers_at.cast(),
        ];
        // SAFETY: these are the arguments of the kernel: a frame, two arrays of its size, and three rectangles within it.
        unsafe { on_host().launch(kernel, [1, 3], &mut arguments, Stream::LEGACY) }.unwrap();
        assert_eq!(into, [0.0, 0.0, 0.0, changed[0], changed[1], 0.0], "{kernel}");
    }
}

#[test]
fn noise_is_that_of_the_host_bit_for_bit() {
    use crate::contract::pipeline;
    use hsipack_augment::{ElementType, Frame, Host, SampleKey};

    let op = serde_json::json!({"op": "gaussian_noise", "mean": 0.25, "std": 0.5, "p": 0.7});
    let pipeline = pipeline(&[op], 5);
    // Vectors of every width; less than a block of pairs, several, a part of one at the end; several calls, and several keys.
    let sizes = [
        (2, [1, 1, 1]),
        (3, [7, 9, 11]),
        (300, [3, 5, 10]),
        (2, [3, 4, 5]),
        (2, [30, 24, 100]),
        (4, [16, 8, 8]),
    ];
    for (samples, [rows, columns, bands]) in sizes {
        let keys: Vec<SampleKey> =
            (0..samples).map(|sample| SampleKey { sample, repeat: 3 }).collect();
        let frame = Frame { rows, columns, bands };
        let parameters = pipeline.draw(frame, 1, &keys).unwrap();
        let values = samples * rows * columns * bands;
        let numbers: Vec<f64> = (0..values).map(|number| f64::from(number as u32 % 13)).collect();
        for element in [ElementType::F16, ElementType::BF16, ElementType::F32] {
            let shape = [samples, rows, columns, bands];
            let image = Array::of_numbers(&numbers, &shape, element).unwrap();
            let images = Images::new(image.permuted(&[0, 3, 1, 2]), Vec::new());
            let want = pipeline.apply(&Host::new(2), &images, &parameters).unwrap().image;
            let have = apply(&pipeline, &images, &parameters, 1).unwrap().image;
            let numbers = crate::contract::numbers;
            assert_eq!(numbers(&have), numbers(&want), "{element:?} {shape:?}");
            assert_ne!(numbers(&have), numbers(&images.image), "{element:?} {shape:?}");
        }
    }
    let ran = on_host().ran.lock().unwrap();
    for width in ["f16_8", "f16_4", "f16_2", "f16_1", "bf16_8", "f32_4", "f32_2", "f32_1"] {
        assert!(ran.contains(&format!("noise_{width}")), "{width}");
    }
}

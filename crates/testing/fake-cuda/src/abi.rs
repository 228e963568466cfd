//! Types of the driver's functions, as in `cuda.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use CUresult::CUDA_ERROR_INVALID_VALUE;

/// A device's number.
pub type CUdevice = c_int;
/// An address in a device's memory.
pub type CUdeviceptr = c_ulonglong;
/// See [`handle`].
pub type CUcontext = usize;
/// See [`handle`]; small numbers are the default streams.
pub type CUstream = usize;
/// See [`handle`].
pub type CUevent = usize;
/// See [`handle`].
pub type CUmodule = usize;
/// See [`handle`].
pub type CUfunction = usize;

/// The result of a call, or the error code that says why it failed.
pub type Result<T> = std::result::Result<T, CUresult>;

macro_rules! results {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Result codes of calls.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "names of cuda.h")]
        pub enum CUresult {
            $(#[doc = $text] $name = $number,)*
        }

        impl CUresult {
            /// All results that the stand-in knows, with their names and descriptions.
            pub const ALL: &[(Self, &CStr, &CStr)] = &[$((
                Self::$name,
                c_text(concat!(stringify!($name), "\0")),
                c_text(concat!($text, "\0")),
            ),)*];
        }
    };
}

results! {
    CUDA_SUCCESS = 0, "no error";
    CUDA_ERROR_INVALID_VALUE = 1, "invalid argument";
    CUDA_ERROR_OUT_OF_MEMORY = 2, "out of memory";
    CUDA_ERROR_NOT_INITIALIZED = 3, "initialization error";
    CUDA_ERROR_DEINITIALIZED = 4, "driver shutting down";
    CUDA_ERROR_STUB_LIBRARY = 34, "CUDA driver is a stub library";
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46, "CUDA-capable device(s) is/are busy or unavailable";
    CUDA_ERROR_NO_DEVICE = 100, "no CUDA-capable device is detected";
    CUDA_ERROR_INVALID_DEVICE = 101, "invalid device ordinal";
    CUDA_ERROR_INVALID_CONTEXT = 201, "invalid device context";
    CUDA_ERROR_ECC_UNCORRECTABLE = 214, "uncorrectable ECC error encountered";
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220, "uncorrectable NVLink error detected during the execution";
    CUDA_ERROR_OPERATING_SYSTEM = 304, "OS call failed or operation not supported on this OS";
    CUDA_ERROR_INVALID_HANDLE = 400, "invalid resource handle";
    CUDA_ERROR_NOT_FOUND = 500, "named symbol not found";
    CUDA_ERROR_NOT_READY = 600, "device not ready";
    CUDA_ERROR_ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    CUDA_ERROR_LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    CUDA_ERROR_ASSERT = 710, "device-side assert triggered";
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714, "hardware stack error";
    CUDA_ERROR_LAUNCH_FAILED = 719, "unspecified launch failure";
    CUDA_ERROR_NOT_PERMITTED = 800, "operation not permitted";
    CUDA_ERROR_NOT_SUPPORTED = 801, "operation not supported";
    CUDA_ERROR_SYSTEM_NOT_READY = 802, "system not yet initialized";
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803, "system has unsupported display driver / cuda driver combination";
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "forward compatibility was attempted on non supported HW";
    CUDA_ERROR_EXTERNAL_DEVICE = 911, "an async error has occurred in external entity outside of CUDA";
    CUDA_ERROR_UNKNOWN = 999, "unknown error";
}

impl CUresult {
    /// The result with this number.
    pub fn numbered(number: c_uint) -> Option<Self> {
        Self::ALL.iter().map(|(result, ..)| *result).find(|result| *result as c_uint == number)
    }

    /// The result with this name.
    pub fn named(name: &str) -> Option<Self> {
        let named =
            Self::ALL.iter().find(|(_, candidate, _)| candidate.to_bytes() == name.as_bytes());
        named.map(|(result, ..)| *result)
    }
}

/// A text that ends with NUL, as a C string.
const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a text without NUL, or with two"),
    }
}

/// The kind of object that a handle stands for.
#[derive(Clone, Copy)]
pub enum Tag {
    Context = 0xC,
    Event = 0xE,
    Function = 0xF,
    Module = 0xD,
    Stream = 0x5,
}

/// The part of a handle that distinguishes it from an address: no address begins with it, so a
/// handle cannot be dereferenced.
const NO_ADDRESS: usize = 0x0FAC << 48;

/// The handle of the `number`th object of a kind. Handles are never reused.
pub fn handle(tag: Tag, number: usize) -> usize {
    NO_ADDRESS | (tag as usize) << 40 | number << 4
}

/// The number that was passed to [`handle`].
pub fn number(tag: Tag, raw: usize) -> Option<usize> {
    let number = (raw & ((1 << 40) - 1)) >> 4;
    (handle(tag, number) == raw).then_some(number)
}

/// A caller's pointer to which a value is written.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value.
    ///
    /// # Errors
    /// If the pointer is null.
    pub fn set(&self, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes the value, unless the pointer is null.
    pub fn set_if_wanted(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: callers from C pass null, or an address at which they own a value of this type.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// The same address, for a value of another type.
    pub fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// Writes as much of a text as fits into `room` characters, including NUL.
    pub fn set_text(&self, text: &str, room: usize) {
        let bytes = text.bytes().take(room.saturating_sub(1)).chain([0]).take(room);
        for (index, byte) in bytes.enumerate() {
            Out(self.0.wrapping_add(index)).set_if_wanted(byte as c_char);
        }
    }
}

/// A text that a C caller passes, or null.
#[repr(transparent)]
pub struct TextIn(*const c_char);

impl TextIn {
    /// The text; empty if the pointer is null.
    pub fn text(&self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: callers from C pass null, or a string that ends with NUL and lives as long as the call.
        unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned()
    }
}

/// The addresses of a kernel's arguments, or null.
#[repr(transparent)]
pub struct Arguments(*const *const c_void);

impl Arguments {
    /// Whether there are none.
    pub fn are_missing(&self) -> bool {
        self.0.is_null()
    }

    /// Argument `number`, of which the kernel must have so many, of this type.
    pub fn get<T: Copy>(&self, number: usize) -> T {
        // SAFETY: callers from C pass the address of a value for each argument of the kernel, which the driver reads during
        // the call. The types are those of the kernel.
        unsafe { self.0.add(number).read().cast::<T>().read_unaligned() }
    }
}

/// Flag of a stream that does not wait for the default stream, and for which the default stream
/// does not wait.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// Flag of an event between which and others no time can be measured.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// Flag of host memory that is registered for all contexts.
pub const REGISTER_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub const REGISTER_READ_ONLY: c_uint = 8;
/// The default stream, like null.
pub const STREAM_LEGACY: CUstream = 1;
/// The default stream of the calling thread.
pub const STREAM_PER_THREAD: CUstream = 2;

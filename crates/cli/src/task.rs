//! A long task as the user sees it: a progress bar on stderr, and Ctrl-C.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hsipack_pack::progress::Progress;
use hsipack_store::threads;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::output;

/// A running task.
pub struct Task {
    /// The task reports its progress here, and stops if this says so.
    pub progress: Arc<Progress>,
    /// The bar; hidden if stderr is not a terminal.
    pub bar: ProgressBar,
    ended: Arc<AtomicBool>,
    /// `None` if the system refuses another thread; then the bar does not move.
    watcher: Option<JoinHandle<()>>,
}

impl Task {
    /// Starts to show progress as `bytes DONE`. The first Ctrl-C stops the task cleanly, the second
    /// one at once.
    pub fn start(done: &'static str) -> Self {
        let progress = Arc::new(Progress::default());
        stop_on_ctrl_c(&progress);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{spinner} {decimal_bytes} {msg}  {decimal_bytes_per_sec}  {elapsed}",
        );
        bar.set_style(style.expect("a valid template"));
        bar.set_message(done);
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (progress, bar, ended) = (progress.clone(), bar.clone(), ended.clone());
            let watch = move || {
                while !ended.load(Ordering::Relaxed) {
                    bar.set_position(progress.bytes_in.load(Ordering::Relaxed));
                    let cubes = progress.cubes.load(Ordering::Relaxed);
                    if cubes > 0 {
                        bar.set_message(format!(
                            "{done}  {}",
                            output::count(cubes as usize, "cube")
                        ));
                    }
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            };
            threads::start("progress", watch).ok()
        };
        Self { progress, bar, ended, watcher }
    }

    /// Shows a bar of `total` bytes with the time left, now that the total is known.
    pub fn set_total(&self, total: u64) {
        let style = "{bar:30} {percent:>3}%  {decimal_bytes} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left  {msg}";
        self.bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        self.bar.set_length(total);
    }

    /// Shows a bar of `total` shards. `bytes_in` then counts shards.
    pub fn count_shards(&self, total: u64) {
        let style = "{bar:30} {pos} of {len} shards  {elapsed}, {eta} left";
        self.bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        self.bar.set_length(total);
    }

    /// Removes the bar.
    pub fn finish(self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher {
            watcher.thread().unpark();
            // A bar that cannot be drawn is no reason to fail.
            let _ = watcher.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Turns a spinner until it is finished. If the system refuses another thread, the spinner does not
/// move.
pub fn spin(bar: &ProgressBar) {
    let bar = bar.clone();
    let turn = move || {
        while !bar.is_finished() {
            bar.tick();
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // A bar that cannot be drawn is no reason to fail.
    let _ = threads::start("progress", turn);
}

/// Sets `progress.stop` at the first Ctrl-C, SIGTERM or SIGHUP; the second one ends the process at
/// once.
///
/// The signal handlers themselves do this: a thread that waits for signals could not start where
/// memory is short.
pub fn stop_on_ctrl_c(progress: &Progress) {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // Handlers run in the order of registration, so the first signal does not end the process. If the system refuses
        // a handler, the signal ends the process, which is safe.
        let _ = flag::register_conditional_shutdown(signal, 130, progress.stop.clone())
            .and_then(|_| flag::register(signal, progress.stop.clone()));
    }
}

/// Whether whoever started this process has it ignore a signal, as `nohup` does with SIGHUP.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries, into memory of the right size; if the call fails, all zeros is a valid `sigaction`.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

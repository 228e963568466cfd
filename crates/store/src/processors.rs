//! How busy the machine's processors are.

use std::time::Duration;

/// The unit of times in `/proc/stat`. It is the same on all systems that hsipack runs on.
#[cfg(target_os = "linux")]
const TICK: Duration = Duration::from_millis(10);

/// Time that all processors together were idle since the machine started, in steps of 10 ms for
/// each processor. `None` if the system does not say.
pub fn idle_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return parse(&std::fs::read_to_string("/proc/stat").ok()?);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Idle time, also while waiting for disks, from the text of `/proc/stat`.
#[cfg(target_os = "linux")]
fn parse(text: &str) -> Option<Duration> {
    let all = text.lines().next()?.strip_prefix("cpu ")?;
    let mut times = all.split_whitespace().skip(3).map(str::parse::<u32>);
    let (idle, waiting) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(TICK * idle.checked_add(waiting)?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_times_are_added() {
        let text = "cpu  100 0 50 700 20 0 5 0 0 0\ncpu0 100 0 50 700 20 0 5 0 0 0\nintr 5\n";
        assert_eq!(parse(text), Some(Duration::from_millis(7200)));
    }

    #[test]
    fn other_texts_have_no_idle_time() {
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 3 x 5", "intr 1 2 3 4 5"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn idle_time_does_not_run_backwards() {
        let (first, second) = (idle_time(), idle_time());
        assert!(first <= second, "{first:?} {second:?}");
    }
}

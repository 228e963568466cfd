//! Values that belong to one process. After `fork`, the child has copies of the parent's locks in
//! whatever state they were, but none of its threads.

use std::mem::ManuallyDrop;

/// A value with threads or locks. Only the process that made it may use or drop it. A child made by
/// `fork` forgets it instead: joining threads that do not exist there, or taking a lock that one of
/// them held, would wait for ever.
#[derive(Debug)]
pub struct OfProcess<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// The value, in the process that made it; `None` in a forked child.
    pub fn get(&self) -> Option<&T> {
        (self.process == std::process::id()).then_some(&*self.value)
    }

    /// The value, to be changed, in the process that made it; `None` in a forked child.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        (self.process == std::process::id()).then_some(&mut *self.value)
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: dropped here only, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_dropped_by_its_own_process_only() {
        let value = Arc::new(());
        drop(OfProcess::new(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);

        let mut child = OfProcess::new(value.clone());
        assert!(child.get().is_some());
        child.process = child.process.wrapping_add(1);
        assert!(child.get().is_none());
        drop(child);
        assert_eq!(Arc::strong_count(&value), 2, "a child dropped what its parent uses");
    }
}

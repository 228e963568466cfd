//! Leaks: resources that were not released before their context or their process ended.

use crate::faults::{Kind, report};
use crate::settings::REPORT;
use crate::state::State;

impl State {
    /// Reports everything that a context still holds.
    pub fn note_leaks(&mut self, context: usize) {
        let leaks = [
            (self.memory.alive(context), "allocation(s) of device memory"),
            (self.host.alive(context), "registration(s) of host memory"),
            (self.streams.alive(context), "stream(s)"),
            (self.events.alive(context), "event(s)"),
            (self.modules.alive(context), "module(s) of kernels"),
        ];
        for (count, what) in leaks {
            if count > 0 {
                self.note(Kind::Leak, format_args!("{count} {what} not given back"));
            }
        }
    }

    /// Reports everything that was not given back, and returns the number of faults.
    pub fn end(&mut self) -> usize {
        for device in 0..self.contexts.devices() {
            if let Some((context, retained)) = self.contexts.primary(device) {
                self.note_leaks(context);
                let what =
                    format!("the context of device {device} is still retained {retained} times");
                self.note(Kind::Leak, what);
            }
        }
        let pushed = self.contexts.pushed();
        if pushed > 0 {
            self.note(Kind::Leak, format_args!("{pushed} context(s) pushed and not popped"));
        }
        self.over = true;
        let faults = self.faults.count();
        if faults > 0 || std::env::var_os(REPORT).is_some() {
            report(format_args!("end: {faults} faults"));
        }
        faults
    }
}

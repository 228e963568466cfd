//! Random programs: the stand-in reports one as unordered exactly if a simple check of all pairs of
//! its operations does.

use cudarc::driver::sys::{CUevent, CUstream};
use hsipack_testing::FakeCuda;

use crate::device::{Context, allocate, event, fake, ok, read, stream, write};

const PROGRAMS: u64 = 150;
const STEPS: usize = 14;

#[test]
fn unordered_operations_are_found_as_by_looking_at_all_pairs() {
    let cuda = FakeCuda::new();
    let mut command = cuda.test("oracle::random_programs");
    let output = command.env_remove("FAKE_CUDA_EXIT_STATUS").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "run by the test above"]
fn random_programs() {
    let context = Context::open(0);
    let streams = [stream(), stream(), stream()];
    let events = [event(), event()];
    let mut found = 0;
    for seed in 1..=PROGRAMS {
        let before = unordered();
        let wants = Program::run(seed, streams, events);
        assert_eq!(unordered() > before, wants, "program {seed}");
        found += u64::from(wants);
    }
    assert!((PROGRAMS / 5..PROGRAMS * 4 / 5).contains(&found), "both sorts: {found}");
    context.close();
}

fn unordered() -> usize {
    fake().faults().iter().filter(|fault| fault.starts_with("[unordered]")).count()
}

/// An access to memory: the bytes, and whether it writes.
struct Access {
    first: usize,
    end: usize,
    writes: bool,
    /// One bit for each access that is done before this one begins.
    before: u64,
}

/// For each stream, event and the host, the accesses that are done before its next operation, as
/// bits.
#[derive(Default)]
struct Program {
    accesses: Vec<Access>,
    streams: [u64; 3],
    events: [u64; 2],
    host: u64,
}

impl Program {
    /// Runs a program, and returns whether two of its accesses conflict.
    fn run(seed: u64, streams: [CUstream; 3], events: [CUevent; 2]) -> bool {
        let memory = allocate(16);
        let mut program = Self::default();
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((dice >> 33) % sides) as usize
        };
        // Record the events again, because they are those of the previous program.
        for (event, stream) in events.into_iter().zip(streams) {
            ok!(cuEventRecord(event, stream));
        }
        for _ in 0..STEPS {
            let (on, event) = (roll(3), roll(2));
            match roll(12) {
                0..4 => {
                    let (first, bytes) = [(0, 16), (0, 8), (8, 8)][roll(3)];
                    let writes = roll(3) == 0;
                    program.access(on, first, first + bytes, writes);
                    let address = memory + first as u64;
                    if writes {
                        write(streams[on], address, bytes, 1);
                    } else {
                        read(streams[on], address, &vec![1; bytes]);
                    }
                }
                4..7 => {
                    program.events[event] = program.streams[on] | program.host;
                    ok!(cuEventRecord(events[event], streams[on]));
                }
                7..11 => {
                    program.streams[on] |= program.events[event];
                    ok!(cuStreamWaitEvent(streams[on], events[event], 0));
                }
                _ => {
                    program.host |= program.events[event];
                    ok!(cuEventSynchronize(events[event]));
                }
            }
        }
        fake().finish();
        ok!(cuCtxSynchronize());
        ok!(cuMemFree_v2(memory));
        program.has_conflict()
    }

    fn access(&mut self, on: usize, first: usize, end: usize, writes: bool) {
        let before = self.streams[on] | self.host;
        self.streams[on] = before | 1 << self.accesses.len();
        self.accesses.push(Access { first, end, writes, before });
    }

    fn has_conflict(&self) -> bool {
        self.accesses.iter().enumerate().any(|(position, late)| {
            self.accesses[..position].iter().enumerate().any(|(bit, early)| {
                let overlaps = early.first < late.end && late.first < early.end;
                overlaps && (early.writes || late.writes) && late.before & 1 << bit == 0
            })
        })
    }
}

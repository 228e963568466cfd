//! A transfer like hsipack's: two host slots, two device slots, a stream for copies, and a
//! consumer's stream.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUevent, CUstream};

use crate::device::{Context, allocate, copy, ok, read, recorded, register, start, stream};

const BYTES: usize = 5000;
const BATCHES: usize = 16;

/// The step that a transfer leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Nothing,
    /// The wait of a copy for the consumer's work on the previous batch in its slot.
    Fence,
    /// The wait of the consumer's stream for the copy.
    WaitForCopy,
    /// The wait of the host for a copy before it fills the host slot again.
    WaitOfHost,
    /// The wait for all work before memory is freed.
    WaitAtEnd,
}

/// The stream of a consumer.
#[derive(Clone, Copy, Debug)]
pub enum Consumer {
    /// The stream null, 1 or 2.
    Default(usize),
    Own,
}

/// Copies batches to the device, where a consumer reads each of them.
pub fn transfer(consumer: Consumer, without: Without) {
    let context = Context::open(0);
    let mut ring = vec![0; 2 * BYTES];
    register(&ring);
    let slots = [allocate(BYTES), allocate(BYTES)];
    let copies = stream();
    let new_stream = stream();
    let consumer = match consumer {
        Consumer::Default(number) => number as CUstream,
        Consumer::Own => new_stream,
    };
    let mut copied: [Option<CUevent>; 2] = [None, None];
    let mut fences: [Option<CUevent>; 2] = [None, None];
    for batch in 0..BATCHES {
        let slot = batch % 2;
        if let Some(event) = copied[slot].take() {
            if without != Without::WaitOfHost {
                ok!(cuEventSynchronize(event));
            }
            ok!(cuEventDestroy_v2(event));
        }
        let host = &mut ring[slot * BYTES..][..BYTES];
        host.fill(batch as u8);
        if let Some(fence) = fences[slot].take() {
            if without != Without::Fence {
                ok!(cuStreamWaitEvent(copies, fence, 0));
            }
            ok!(cuEventDestroy_v2(fence));
        }
        copy(slots[slot], host, copies);
        let event = recorded(copies);
        if without != Without::WaitForCopy {
            ok!(cuStreamWaitEvent(consumer, event, 0));
        }
        read(consumer, slots[slot], &[batch as u8; BYTES]);
        copied[slot] = Some(event);
        fences[slot] = Some(let_go(&context, consumer, batch));
    }
    if without != Without::WaitAtEnd {
        ok!(cuStreamSynchronize(consumer));
    }
    for event in copied.into_iter().chain(fences).flatten() {
        ok!(cuEventDestroy_v2(event));
    }
    for slot in slots {
        ok!(cuMemFree_v2(slot));
    }
    ok!(cuMemHostUnregister(start(&ring)));
    for stream in [copies, new_stream] {
        ok!(cuStreamDestroy_v2(stream));
    }
    context.close();
}

/// Records the fence after a batch, sometimes in another thread.
fn let_go(context: &Context, consumer: CUstream, batch: usize) -> CUevent {
    // The per-thread default stream (2) differs between threads, so it is not used in another thread.
    if !batch.is_multiple_of(3) || consumer as usize == 2 {
        return recorded(consumer);
    }
    let (context, consumer) = (context.context as usize, consumer as usize);
    let elsewhere = std::thread::spawn(move || {
        ok!(cuCtxPushCurrent_v2(context as CUcontext));
        let event = recorded(consumer as CUstream);
        ok!(cuCtxPopCurrent_v2(&mut ptr::null_mut()));
        event as usize
    });
    elsewhere.join().unwrap() as CUevent
}

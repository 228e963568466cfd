use super::*;

const PIECE: usize = 100;

fn ring(slots: usize, tasks: usize) -> Arc<Ring<u64>> {
    let options = MemoryOptions { locked: false, no_huge_pages: true, ..Default::default() };
    Arc::new(Ring::new(slots, tasks * PIECE, &options).unwrap())
}

fn publish(ring: &Ring<u64>, batch: u64, tasks: usize) -> bool {
    match ring.claim(ring.slots().generation()) {
        Claim::Slot(mut slot) => {
            let (plan, pieces) = slot.plan();
            *plan = batch;
            pieces.extend((0..tasks).map(|task| task * PIECE..(task + 1) * PIECE));
            slot.publish();
            true
        }
        _ => false,
    }
}

fn work(ring: &Ring<u64>) {
    while let Some(mut task) = ring.take_task() {
        let (batch, number, memory) = task.parts();
        let value = (*batch as u8).wrapping_mul(31).wrapping_add(number as u8);
        memory.unwrap().fill(value);
        task.done(Vec::new());
    }
}

fn is_right(lease: &Lease<u64>, tasks: usize) -> bool {
    (0..tasks).all(|task| {
        let value = (*lease.plan() as u8).wrapping_mul(31).wrapping_add(task as u8);
        lease.bytes()[task * PIECE..(task + 1) * PIECE].iter().all(|byte| *byte == value)
    })
}

#[test]
fn batches_come_in_order_with_every_piece_written() {
    let (batches, tasks) = if cfg!(miri) { (6, 3) } else { (300, 7) };
    let ring = ring(3, tasks);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| work(&ring));
        }
        scope.spawn(|| {
            for batch in 0..batches {
                assert!(publish(&ring, batch, tasks));
            }
            ring.slots().finish(0);
        });
        let mut kept = Vec::new();
        for batch in 0..batches {
            let Next::Batch(lease, failures, _) = ring.take(None) else { panic!("no batch") };
            assert_eq!(*lease.plan(), batch);
            assert!(failures.is_empty() && is_right(&lease, tasks));
            // Leases are given back late and out of order.
            kept.push(lease);
            if kept.len() == 2 {
                let first = kept.remove(batch as usize % 2);
                assert!(is_right(&first, tasks));
            }
        }
        drop(kept);
        assert!(matches!(ring.take(None), Next::Finished));
        ring.slots().stop();
    });
}

#[test]
fn a_lease_outlives_everything_else() {
    let ring = ring(2, 1);
    publish(&ring, 5, 1);
    let mut task = ring.take_task().unwrap();
    task.parts().2.unwrap().fill(7);
    task.done(Vec::new());
    let Next::Batch(lease, ..) = ring.take(None) else { panic!("no batch") };
    ring.slots().stop();
    drop(ring);
    assert!(lease.bytes()[..PIECE].iter().all(|byte| *byte == 7));
}

#[test]
fn a_task_that_is_dropped_fails_its_batch() {
    let ring = ring(1, 1);
    publish(&ring, 0, 1);
    drop(ring.take_task());
    let Next::Batch(_, failures, _) = ring.take(None) else { panic!("no batch") };
    assert_eq!(failures.len(), 1);
}

#[test]
#[should_panic(expected = "overlap")]
fn overlapping_pieces_are_refused() {
    let ring = ring(1, 2);
    let Claim::Slot(mut slot) = ring.claim(0) else { panic!("no slot") };
    slot.plan().1.extend([0..60, 50..100]);
    slot.publish();
}

#[test]
#[should_panic(expected = "beyond")]
fn pieces_beyond_the_slot_are_refused() {
    let ring = ring(2, 1);
    let Claim::Slot(mut slot) = ring.claim(0) else { panic!("no slot") };
    slot.plan().1.push(0..5000);
    slot.publish();
}

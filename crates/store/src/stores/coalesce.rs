//! Decides which spans are read together: reading neighbours in one request costs less, even with a
//! gap between them.

use std::ops::Range;

/// Neighbouring spans that are read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the first byte of its members to the last.
    pub span: Range<u64>,
    /// The indices of its spans in the list given to [`coalesce`].
    pub members: Range<usize>,
}

impl Run {
    /// The position of a member in the run's bytes.
    pub fn place(&self, member: &Range<u64>) -> Range<usize> {
        debug_assert!(self.span.start <= member.start && member.end <= self.span.end);
        (member.start - self.span.start) as usize..(member.end - self.span.start) as usize
    }
}

/// Gathers `spans`, sorted by their starts, into runs: a span joins the previous run if at most
/// `max_gap` unwanted bytes are between them and the run stays within `max_len` bytes. A span
/// longer than `max_len` is a run of its own. Overlapping spans have no gap.
pub fn coalesce(
    spans: &[Range<u64>],
    max_gap: u64,
    max_len: u64,
) -> impl Iterator<Item = Run> + '_ {
    debug_assert!(spans.is_sorted_by_key(|span| span.start), "spans are sorted");
    debug_assert!(spans.iter().all(|span| span.start <= span.end), "spans end after they start");
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = spans.get(next)?;
        let mut run = Run { span: first.clone(), members: next..next + 1 };
        while let Some(span) = spans.get(run.members.end) {
            let end = run.span.end.max(span.end);
            let near = span.start.saturating_sub(run.span.end) <= max_gap;
            if !near || end - run.span.start > max_len {
                break;
            }
            run.span.end = end;
            run.members.end += 1;
        }
        next = run.members.end;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_join_up_to_the_gap_and_the_length() {
        let spans = [0..10, 10..20, 23..30, 34..40, 40..90, 90..91];
        let runs: Vec<_> = coalesce(&spans, 3, 50).collect();
        let want = [(0..30, 0..3), (34..40, 3..4), (40..90, 4..5), (90..91, 5..6)];
        assert_eq!(runs, want.map(|(span, members)| Run { span, members }));
        assert_eq!(runs[0].place(&spans[2]), 23..30);
        assert_eq!(runs[1].place(&spans[3]), 0..6);
        assert_eq!(coalesce(&[], 3, 50).count(), 0);
    }

    /// Checks byte by byte whether the spans may be one run.
    fn fits(spans: &[Range<u64>], max_gap: u64, max_len: u64) -> bool {
        let start = spans.iter().map(|span| span.start).min().unwrap();
        let end = spans.iter().map(|span| span.end).max().unwrap();
        let (mut gap, mut widest) = (0, 0);
        for byte in start..end {
            let unwanted = !spans.iter().any(|span| span.contains(&byte));
            gap = if unwanted { gap + 1 } else { 0 };
            widest = widest.max(gap);
        }
        spans.len() == 1 || (widest <= max_gap && end - start <= max_len)
    }

    /// The longest possible runs, from the front.
    fn oracle(spans: &[Range<u64>], max_gap: u64, max_len: u64) -> Vec<Range<usize>> {
        let (mut runs, mut first) = (Vec::new(), 0);
        while first < spans.len() {
            let fitting = |end: &usize| fits(&spans[first..*end], max_gap, max_len);
            let end = (first + 1..=spans.len()).take_while(fitting).last().unwrap();
            runs.push(first..end);
            first = end;
        }
        runs
    }

    proptest! {
        #[test]
        fn runs_are_those_of_the_oracle(
            spans in prop::collection::vec((0u64..300, 1u64..40), 0..12), max_gap in 0u64..20, max_len in 1u64..120
        ) {
            let mut spans: Vec<_> = spans.into_iter().map(|(start, len)| start..start + len).collect();
            spans.sort_unstable_by_key(|span| span.start);
            let runs: Vec<_> = coalesce(&spans, max_gap, max_len).collect();
            let members: Vec<_> = runs.iter().map(|run| run.members.clone()).collect();
            prop_assert_eq!(members, oracle(&spans, max_gap, max_len));
            let bytes: Vec<u8> = (0..400u64).map(|byte| byte as u8).collect();
            for run in &runs {
                let read = &bytes[run.span.start as usize..run.span.end as usize];
                for span in &spans[run.members.clone()] {
                    prop_assert_eq!(&read[run.place(span)], &bytes[span.start as usize..span.end as usize]);
                }
            }
        }
    }
}

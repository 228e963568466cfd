//! The Pareto front.

use super::figures::Measured;

/// Which candidates are on the front of ratio, decoding speed and writing speed.
pub fn of(tried: &[Measured]) -> Vec<bool> {
    let points: Vec<[f64; 3]> = tried
        .iter()
        .map(|measured| [measured.ratio, measured.decode_at_most(), measured.write.gb_per_s])
        .collect();
    front(&points)
}

/// Which points are not dominated. A point dominates another if it is at least as large in every
/// number and larger in one.
pub fn front<const N: usize>(points: &[[f64; N]]) -> Vec<bool> {
    let dominates = |a: &[f64; N], b: &[f64; N]| {
        a.iter().zip(b).all(|(a, b)| a >= b) && a.iter().zip(b).any(|(a, b)| a > b)
    };
    points.iter().map(|point| !points.iter().any(|other| dominates(other, point))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_better_one_of_two_stays() {
        assert_eq!(front(&[[1.0, 2.0], [1.0, 1.0], [2.0, 1.0]]), [true, false, true]);
        assert_eq!(front(&[[1.0], [1.0]]), [true, true]);
        assert_eq!(front::<3>(&[]), [false; 0]);
    }

    proptest! {
        /// Compares with sorting: in two dimensions, the front consists of the records of the
        /// second number in the order of the first.
        #[test]
        fn the_front_is_that_of_a_sweep(points in prop::collection::vec((0u8..20, 0u8..20), 1..40)) {
            let points: Vec<[f64; 2]> = points.iter().map(|(x, y)| [(*x).into(), (*y).into()]).collect();
            let got = front(&points);
            for (at, [x, y]) in points.iter().enumerate() {
                let right = points.iter().filter(|[a, _]| a > x).map(|[_, b]| *b).fold(-1.0, f64::max);
                let same = points.iter().filter(|[a, _]| a == x).map(|[_, b]| *b).fold(-1.0, f64::max);
                prop_assert_eq!(got[at], *y > right && *y >= same);
            }
        }
    }
}

//! Feature `clap`: spreads and changes as they are typed on a command line.

use hsipack_format::arguments::duration;

use super::model::Order;
use super::times::Spread;
use super::what_if::{Change, WhatIf};

/// `30%` or `200ms`.
pub(super) fn spread(text: &str) -> Result<Spread, String> {
    let Some(percent) = text.strip_suffix('%') else {
        let time = duration(text);
        return time
            .map(|time| Spread::Seconds(time.as_secs_f64()))
            .map_err(|_| "give a share such as 30%, or a time such as 200ms".to_owned());
    };
    let percent: f64 = percent.trim().parse().map_err(|_| "give a share such as 30%".to_owned())?;
    // With a far larger spread, only the rarest batches would take any time.
    if (0.0..=1000.0).contains(&percent) {
        Ok(Spread::Share(percent / 100.0))
    } else {
        Err("give a share from 0% to 1000%".to_owned())
    }
}

/// `workers=8,load=0.5x`.
pub(super) fn what_if(text: &str) -> Result<WhatIf, String> {
    let mut change = WhatIf { name: text.to_owned(), ..WhatIf::default() };
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} has no value; write it as workers=8 or load=0.5x"))?;
        let number = || {
            value.trim().parse::<usize>().map_err(|_| format!("{value:?} is not a number of {key}"))
        };
        let repeated = match key.trim() {
            "workers" | "loaders" => change.workers.replace(number()?).is_some(),
            "queue" => change.queue.replace(number()?).is_some(),
            "load" => change.load.replace(time(value)?).is_some(),
            "copy" => change.copy.replace(time(value)?).is_some(),
            "decode" => change.decode.replace(time(value)?).is_some(),
            "device-slots" => change.device_slots.replace(number()?).is_some(),
            "step" => change.step.replace(time(value)?).is_some(),
            "order" => change.order.replace(order(value)?).is_some(),
            _ => {
                return Err(format!(
                    "{key:?} is not one of workers, load, queue, copy, decode, device-slots, step, order"
                ));
            }
        };
        if repeated {
            return Err(format!("{} is given twice", key.trim()));
        }
    }
    Ok(change)
}

/// `0.5x` or `300ms`.
fn time(text: &str) -> Result<Change, String> {
    let bad = || format!("{text:?} is not a factor such as 0.5x or a time such as 300ms");
    match text.trim().strip_suffix(['x', '×']) {
        Some(factor) => {
            let factor: f64 = factor.trim().parse().map_err(|_| bad())?;
            if factor.is_finite() && factor > 0.0 { Ok(Change::Factor(factor)) } else { Err(bad()) }
        }
        None => {
            let time = duration(text.trim()).map_err(|_| bad())?;
            Ok(Change::Seconds(time.as_secs_f64()))
        }
    }
}

fn order(text: &str) -> Result<Order, String> {
    text.trim().parse().map_err(|error: hsipack_format::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_shares_or_times() {
        assert_eq!(spread("30%"), Ok(Spread::Share(0.3)));
        assert_eq!(spread("200ms"), Ok(Spread::Seconds(0.2)));
        assert_eq!((Spread::Share(0.5).of(4.0), Spread::Seconds(0.2).of(4.0)), (2.0, 0.2));
        for bad in ["", "30", "%", "-1%", "nan%", "2000%", "x%"] {
            assert!(spread(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn changes_are_read_as_spelled() {
        let change = what_if("workers=8,load=0.5x,step=50ms,queue=3,order=in-order").unwrap();
        assert_eq!(
            (change.workers, change.queue, change.order),
            (Some(8), Some(3), Some(Order::InOrder))
        );
        assert_eq!(
            (change.load, change.step),
            (Some(Change::Factor(0.5)), Some(Change::Seconds(0.05)))
        );
        let change = what_if("copy=2x,decode=3ms,device-slots=4").unwrap();
        assert_eq!(
            (change.copy, change.decode, change.device_slots),
            (Some(Change::Factor(2.0)), Some(Change::Seconds(0.003)), Some(4))
        );
        for bad in [
            "",
            "workers",
            "workers=x",
            "speed=2",
            "load=2",
            "load=0x",
            "load=-1x",
            "order=any",
            "queue=1,queue=2",
            "copy=2",
            "device-slots=2x",
            "load=infx",
        ] {
            assert!(what_if(bad).is_err(), "{bad}");
        }
    }
}

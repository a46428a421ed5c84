//! What a dead letter's headers say.

use std::time::{SystemTime, UNIX_EPOCH};

use lapin::types::{AMQPValue, FieldTable};

/// The text of a string, "" if the value is something else.
fn text(value: Option<&AMQPValue>) -> String {
    match value {
        Some(AMQPValue::LongString(s)) => s.to_string(),
        Some(AMQPValue::ShortString(s)) => s.to_string(),
        _ => String::new(),
    }
}

fn deaths(headers: &FieldTable) -> Vec<&FieldTable> {
    let Some(AMQPValue::FieldArray(deaths)) = headers.inner().get("x-death") else {
        return Vec::new();
    };
    deaths.as_slice().iter().filter_map(|death| if let AMQPValue::FieldTable(table) = death { Some(table) } else { None }).collect()
}

fn count(death: &FieldTable) -> i64 {
    match death.inner().get("count") {
        Some(AMQPValue::LongLongInt(n)) => *n,
        _ => 0,
    }
}

/// How often the message died in the queue for the reason.
pub fn count_of(headers: &FieldTable, queue: &str, reason: &str) -> i64 {
    let died = |death: &&FieldTable| text(death.inner().get("queue")) == queue && text(death.inner().get("reason")) == reason;
    deaths(headers).into_iter().find(died).map_or(0, count)
}

/// Checks what headers say of a message from exchange jobs, rejected in work.
pub fn check_rejected(headers: &FieldTable) -> super::Result {
    let deaths = deaths(headers);
    assert_eq!(deaths.len(), 1, "number of deaths in {headers:?}");
    let death = deaths[0].inner();
    assert_eq!(count(deaths[0]), 1, "count in {death:?}");
    match death.get("routing-keys") {
        Some(AMQPValue::FieldArray(keys)) => {
            assert_eq!(keys.as_slice().iter().map(|key| text(Some(key))).collect::<Vec<_>>(), ["job"], "routing keys")
        }
        other => panic!("routing keys are {other:?}"),
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    match death.get("time") {
        Some(AMQPValue::Timestamp(time)) => assert!(now.abs_diff(*time) < 60, "time of death {time}, it is {now}"),
        other => panic!("time of death is {other:?}"),
    }
    for (key, want) in [("reason", "rejected"), ("queue", "work"), ("exchange", "jobs")] {
        assert_eq!(text(death.get(key)), want, "x-death {key}");
        for which in ["first", "last"] {
            let name = format!("x-{which}-death-{key}");
            assert_eq!(text(headers.inner().get(name.as_str())), want, "{name}");
        }
    }
    Ok(())
}

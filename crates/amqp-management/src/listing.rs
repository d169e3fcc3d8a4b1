//! Lists: sorted, filtered by name, in pages, and with the columns that were asked for.
//!
//! A list without pages has at most [`LIST_ITEMS_MAX`] items; a longer one is refused, and not cut short in silence.

use std::cmp::Ordering;

use axum::http::StatusCode;
use regex::bytes::RegexBuilder;
use serde_json::{Map, Value, json};

use crate::ask::Query;
use crate::failure::{Failure, Result};

/// Items of a list without pages.
const LIST_ITEMS_MAX: usize = 10_000;

/// Items of a page, as in RabbitMQ.
const PAGE_ITEMS_MAX: usize = 500;

/// Items of a page where the request does not say, as in RabbitMQ.
const PAGE_ITEMS_DEFAULT: usize = 100;

/// Longest pattern by which names are filtered, in bytes.
const PATTERN_BYTES_MAX: usize = 500;

/// What a compiled pattern may take, in bytes.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// How deep columns may be named: `a.b.c`.
const COLUMN_DEPTH_MAX: usize = 16;

/// The items that are to be shown.
#[derive(Debug)]
pub(crate) struct Listing {
    pub items: Vec<Value>,
    /// What is said of them all, where pages are asked for.
    page: Option<Page>,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    number: usize,
    size: usize,
    filtered: usize,
    total: usize,
}

/// The column by which a request wants a list sorted.
pub(crate) fn sorted_by(query: &Query) -> Option<&str> {
    query.get("sort").filter(|column| !column.is_empty())
}

/// Chooses items and puts them in order, by what is asked for and then by these columns.
pub(crate) fn choose(mut items: Vec<Value>, query: &Query, columns: &[&str]) -> Result<Listing> {
    let wanted = sorted_by(query);
    let order = |one: &Value, other: &Value| {
        let columns = wanted.iter().chain(columns);
        let orders = columns.map(|column| compare(at(one, column), at(other, column)));
        orders.fold(Ordering::Equal, Ordering::then)
    };
    items.sort_by(order);
    if query.is_true("sort_reverse") {
        items.reverse();
    }
    let total = items.len();
    let Some(number) = number(query, "page")? else {
        if total > LIST_ITEMS_MAX {
            let reason = format!(
                "there are {total} items, and a list has at most {LIST_ITEMS_MAX}; ask for pages, with page and page_size"
            );
            return Err(Failure::new(StatusCode::BAD_REQUEST, "too_many_items", reason));
        }
        return Ok(Listing { items, page: None });
    };
    let size = self::number(query, "page_size")?.unwrap_or(PAGE_ITEMS_DEFAULT);
    if number == 0 || size == 0 || size > PAGE_ITEMS_MAX {
        let reason = format!(
            "Invalid pagination parameters: page number {number}, page size {size} (from 1 to {PAGE_ITEMS_MAX})"
        );
        return Err(Failure::new(StatusCode::BAD_REQUEST, "invalid_pagination_parameters", reason));
    }
    filter(&mut items, query)?;
    let filtered = items.len();
    let first = (number - 1).saturating_mul(size);
    if first > 0 && first >= filtered {
        let reason = format!("Page out of range, page: {number} page size: {size}, len: {filtered}");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "page_out_of_range", reason));
    }
    let items = items.into_iter().skip(first).take(size).collect();
    Ok(Listing { items, page: Some(Page { number, size, filtered, total }) })
}

/// As [`choose`], and then as an answer.
pub(crate) fn list(items: Vec<Value>, query: &Query, columns: &[&str]) -> Result<Value> {
    Ok(choose(items, query, columns)?.into_json(query))
}

impl Listing {
    /// The answer, with the columns that were asked for.
    pub(crate) fn into_json(self, query: &Query) -> Value {
        let items: Vec<Value> = self.items.into_iter().map(|item| with_columns(item, query)).collect();
        match self.page {
            None => Value::Array(items),
            Some(Page { number, size, filtered, total }) => json!({
                "filtered_count": filtered,
                "item_count": items.len(),
                "items": items,
                "page": number,
                "page_count": filtered.div_ceil(size),
                "page_size": size,
                "total_count": total,
            }),
        }
    }
}

/// An item with the columns that were asked for; with all of them if none were.
pub(crate) fn with_columns(item: Value, query: &Query) -> Value {
    let Some(columns) = query.get("columns") else { return item };
    let wanted: Vec<Vec<&str>> =
        columns.split(',').map(|column| column.splitn(COLUMN_DEPTH_MAX, '.').collect()).collect();
    let wanted: Vec<&[&str]> = wanted.iter().map(Vec::as_slice).collect();
    pick(item, &wanted)
}

fn pick(item: Value, wanted: &[&[&str]]) -> Value {
    match item {
        Value::Object(object) => Value::Object(pick_fields(object, wanted)),
        Value::Array(items) => items.into_iter().map(|item| pick(item, wanted)).collect(),
        plain => plain,
    }
}

fn pick_fields(object: Map<String, Value>, wanted: &[&[&str]]) -> Map<String, Value> {
    let picked = object.into_iter().filter_map(|(name, value)| {
        let below: Vec<&[&str]> =
            wanted.iter().filter_map(|column| column.strip_prefix(&[name.as_str()])).collect();
        if below.is_empty() {
            return None;
        }
        // The whole of it was asked for, or some of what is in it.
        let value = if below.iter().any(|rest| rest.is_empty()) { value } else { pick(value, &below) };
        Some((name, value))
    });
    picked.collect()
}

fn filter(items: &mut Vec<Value>, query: &Query) -> Result<()> {
    let Some(pattern) = query.get("name").filter(|pattern| !pattern.is_empty()) else { return Ok(()) };
    let name = |item: &Value| item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !query.is_true("use_regex") {
        let pattern = pattern.to_lowercase();
        items.retain(|item| name(item).to_lowercase().contains(&pattern));
        return Ok(());
    }
    let refused = |why: String| Failure::new(StatusCode::BAD_REQUEST, "invalid_pagination_parameters", why);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(refused(format!("name filter regex is too long: at most {PATTERN_BYTES_MAX} bytes")));
    }
    let compiled = RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(true)
        .size_limit(PATTERN_COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| refused(format!("name filter regex: {error}")))?;
    items.retain(|item| compiled.is_match(name(item).as_bytes()));
    Ok(())
}

fn number(query: &Query, name: &str) -> Result<Option<usize>> {
    let Some(digits) = query.get(name) else { return Ok(None) };
    let wrong = || {
        let reason = "Pagination parameters are invalid";
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    };
    digits.parse().map(Some).map_err(|_| wrong())
}

/// What stands at `a.b` in an item.
fn at<'i>(item: &'i Value, column: &str) -> Option<&'i Value> {
    column.split('.').take(COLUMN_DEPTH_MAX).try_fold(item, |value, name| value.get(name))
}

/// The order of values: what is not there counts as 0, and numbers come before words.
fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    const ZERO: &Value = &Value::Null;
    let (one, other) = (one.unwrap_or(ZERO), other.unwrap_or(ZERO));
    let number = |value: &Value| if value.is_null() { Some(0.0) } else { value.as_f64() };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => match (one.as_str(), other.as_str()) {
            (Some(one), Some(other)) => one.cmp(other),
            (one, other) => {
                let rank = |value: Option<&str>| u8::from(value.is_some());
                rank(one).cmp(&rank(other))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Value> {
        let item = |name: &str, depth: u64| json!({"vhost": "/", "name": name, "messages": depth, "a": {"b": depth, "c": 1}});
        vec![item("orders", 3), item("Bills", 1), item("audit", 2)]
    }

    fn shown(query: &str) -> Value {
        list(items(), &Query::parse(Some(query)), &["vhost", "name"]).unwrap()
    }

    fn names(list: &Value) -> Vec<&str> {
        let items = list.get("items").unwrap_or(list).as_array().unwrap();
        items.iter().map(|item| item["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn lists_are_sorted_by_name_or_as_asked() {
        assert_eq!(names(&shown("")), ["Bills", "audit", "orders"]);
        assert_eq!(names(&shown("sort=messages")), ["Bills", "audit", "orders"]);
        assert_eq!(names(&shown("sort=a.b&sort_reverse=true")), ["orders", "audit", "Bills"]);
        assert_eq!(names(&shown("sort=nothing")), ["Bills", "audit", "orders"]);
    }

    #[test]
    fn pages_say_how_many_there_are() {
        let page = shown("page=2&page_size=2");
        assert_eq!(names(&page), ["orders"]);
        let said = ["total_count", "filtered_count", "item_count", "page", "page_size", "page_count"];
        assert_eq!(said.map(|name| page[name].as_u64().unwrap()), [3, 3, 1, 2, 2, 2]);
        let filtered = shown("page=1&name=IL");
        assert_eq!(names(&filtered), ["Bills"]);
        assert_eq!([&filtered["filtered_count"], &filtered["total_count"]], [&json!(1), &json!(3)]);
        assert_eq!(names(&shown("page=1&name=%5Ea.*t%24&use_regex=true")), ["audit"]);
        assert_eq!(shown("page=1&name=none")["page_count"], json!(0));
    }

    #[test]
    fn bad_pages_are_refused() {
        let long = format!("page=1&use_regex=true&name={}", "a".repeat(PATTERN_BYTES_MAX + 1));
        for query in [
            "page=0",
            "page=x",
            "page=1&page_size=0",
            "page=1&page_size=501",
            "page=3&page_size=2",
            "page=1&name=(&use_regex=true",
            "page=1&name=a%7B1000%7D%7B1000%7D%7B1000%7D&use_regex=true",
            &long,
            "page=18446744073709551615&page_size=500",
        ] {
            let failed = choose(items(), &Query::parse(Some(query)), &[]).unwrap_err();
            assert_eq!(failed.status(), StatusCode::BAD_REQUEST, "{query}");
        }
    }

    #[test]
    fn a_list_without_pages_has_a_bound() {
        let items = |count| vec![json!({"name": "a"}); count];
        assert!(choose(items(LIST_ITEMS_MAX), &Query::default(), &[]).is_ok());
        assert!(choose(items(LIST_ITEMS_MAX + 1), &Query::default(), &[]).is_err());
        assert!(choose(items(LIST_ITEMS_MAX + 1), &Query::parse(Some("page=1")), &[]).is_ok());
    }

    #[test]
    fn columns_are_picked_at_any_depth() {
        assert_eq!(shown("columns=name,a.b")[0], json!({"name": "Bills", "a": {"b": 1}}));
        assert_eq!(shown("columns=a,a.b&page=1&page_size=1")["items"][0], json!({"a": {"b": 1, "c": 1}}));
        assert_eq!(shown("columns=none")[0], json!({}));
    }
}

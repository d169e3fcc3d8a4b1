//! Tables: every tag byte by byte, bounds, look-ups, and when arguments count as equal.

use super::hex;
use crate::*;
use bytes::Bytes;

fn check(value: impl Into<Value>, transcript: &str) {
    let table = Table::new().with("k", value);
    let transcript = hex(&format!("01 6b {transcript}"));
    assert_eq!(table.encode(), transcript, "{table:?}");
    assert_eq!(Table::decode(transcript), Ok(table));
}

#[test]
fn tags_are_rabbitmqs() {
    check(true, "74 01");
    check(Value::Int8(-2), "62 fe");
    check(Value::UInt8(254), "42 fe");
    check(Value::Int16(-2), "73 fffe");
    check(Value::UInt16(65_534), "75 fffe");
    check(Value::Int32(-2), "49 fffffffe");
    check(Value::UInt32(u32::MAX - 1), "69 fffffffe");
    check(Value::Int64(-2), "6c fffffffffffffffe");
    check(Value::Int64CapitalL(-2), "4c fffffffffffffffe");
    check(Value::Float(1.5), "66 3fc00000");
    check(Value::Double(1.5), "64 3ff8000000000000");
    check(Value::Decimal(Decimal { scale: 2, value: 12_345 }), "44 02 00003039");
    check("text", "53 00000004 74657874");
    check(Value::Binary(hex("00ff")), "78 00000002 00ff");
    check(Value::Timestamp(1_700_000_000), "54 000000006553f100");
    check(Table::new().with("a", Value::Void), "46 00000003 01 61 56");
    check(vec![Value::Void, Value::from(false)], "41 00000003 56 74 00");
    check(Value::Void, "56");
}

#[test]
fn order_duplicates_and_names_of_any_bytes_are_kept() {
    let fields = hex("01 62 56 01 61 56 01 62 74 01 00 56 02 c328 56");
    let table = Table::decode(fields.clone()).unwrap();
    let names: Vec<&[u8]> = table.iter().map(|(name, _)| name.as_ref()).collect();
    assert_eq!(names, [&b"b"[..], b"a", b"b", b"", b"\xc3\x28"]);
    assert_eq!(table.encode(), fields);
    assert_eq!(table.get("b"), Some(&Value::Void), "the first of two");
    assert_eq!(table.get(b"\xc3\x28"), Some(&Value::Void));
    assert_eq!(table.get("c"), None);
}

#[test]
fn a_truth_value_other_than_0_is_1() {
    let table = Table::decode(hex("01 6b 74 ff")).unwrap();
    assert_eq!(table.encode(), hex("01 6b 74 01"));
}

#[test]
fn unknown_tags_are_refused() {
    for tag in ["U", "X", "n", "\0"] {
        let mut fields = hex("01 6b").to_vec();
        fields.extend_from_slice(tag.as_bytes());
        fields.extend_from_slice(&[0; 8]);
        let error = Table::decode(fields.into()).unwrap_err();
        let why = Why::UnknownTag(tag.as_bytes()[0]);
        assert_eq!(error, DecodeError { what: "table", at: 2, why });
        assert_eq!(error.reply_code(), ReplyCode::SyntaxError);
    }
}

#[test]
fn a_value_ends_where_its_table_ends() {
    // The inner table has three bytes; its value would need more, which the outer one has.
    let error = Table::decode(hex("01 6b 46 00000003 01 61 49 00000000")).unwrap_err();
    assert_eq!((error.at, error.why), (10, Why::Truncated { needed: 4, left: 0 }));
    // A length is not believed.
    let error = Table::decode(hex("01 6b 53 ffffffff 00")).unwrap_err();
    assert_eq!(error.why, Why::Truncated { needed: 0xffff_ffff, left: 1 });
}

/// Arrays within each other; the innermost is empty.
fn nested(arrays: usize) -> Table {
    let innermost = Value::Array(Vec::new());
    let value = (1..arrays).fold(innermost, |inner, _| Value::Array(vec![inner]));
    [(ShortStr::new(), value)].into_iter().collect()
}

#[test]
fn depth_is_bounded() {
    let deepest = nested(TABLE_DEPTH_MAX);
    assert_eq!(Table::decode(deepest.encode()), Ok(deepest));
    let error = Table::decode(nested(TABLE_DEPTH_MAX + 1).encode()).unwrap_err();
    assert_eq!((error.why, error.reply_code()), (Why::TooDeep, ReplyCode::SyntaxError));
    assert_eq!(error.to_string(), "table at byte 321: tables and arrays lie more than 64 deep in each other");
}

#[test]
fn fields_and_elements_are_bounded() {
    let array = |elements: usize| {
        let mut fields = b"\0A".to_vec();
        fields.extend_from_slice(&(elements as u32).to_be_bytes());
        fields.resize(fields.len() + elements, b'V');
        Table::decode(fields.into())
    };
    assert!(array(TABLE_ENTRIES_MAX - 1).is_ok());
    assert_eq!(array(TABLE_ENTRIES_MAX).unwrap_err().why, Why::TooManyEntries);
}

#[test]
fn values_are_looked_at_by_kind() {
    let table = Table::new()
        .with("max", Value::UInt8(10))
        .with("ttl", 60_000)
        .with("text", "quorum")
        .with("binary", Value::Binary(Bytes::from_static(b"bytes")))
        .with("lazy", true)
        .with("list", vec![Value::Void])
        .with("inner", Table::new().with("a", 1i64));
    assert_eq!(table.get("max").and_then(Value::as_i64), Some(10));
    assert_eq!(table.get("ttl").and_then(Value::as_i64), Some(60_000));
    assert_eq!(table.get("text").and_then(Value::as_str), Some("quorum"));
    assert_eq!(table.get("binary").and_then(Value::as_str), Some("bytes"));
    assert_eq!(table.get("lazy").and_then(Value::as_bool), Some(true));
    assert_eq!(table.get("list").and_then(Value::as_array), Some(&[Value::Void][..]));
    let inner = table.get("inner").and_then(Value::as_table).unwrap();
    assert_eq!(inner.get("a").and_then(Value::as_i64), Some(1));
    assert_eq!(table.get("text").and_then(Value::as_i64), None);
    assert_eq!(table.get("lazy").and_then(Value::as_str), None);
    assert_eq!(Value::Float(0.5).as_f64(), Some(0.5));
    assert_eq!(table.len(), 7);
}

#[test]
fn arguments_are_compared_as_rabbitmq_does() {
    let same = [
        (Value::Int8(5), Value::Int64(5)),
        (Value::UInt32(5), Value::Int64CapitalL(5)),
        (Value::Float(1.5), Value::Double(1.5)),
        (Value::from("a"), Value::from("a")),
        (Value::Timestamp(1), Value::Timestamp(1)),
        (Value::Void, Value::Void),
    ];
    for (one, other) in same {
        assert!(one.is_equivalent(&other) && other.is_equivalent(&one), "{one:?} {other:?}");
    }
    let different = [
        (Value::Int8(5), Value::Int8(6)),
        (Value::Int32(1), Value::Double(1.0)),
        (Value::Int32(1), Value::Timestamp(1)),
        (Value::Int32(1), Value::from(true)),
        (Value::from("a"), Value::Binary(Bytes::from_static(b"a"))),
        (Value::from("1"), Value::Int32(1)),
    ];
    for (one, other) in different {
        assert!(!one.is_equivalent(&other) && !other.is_equivalent(&one), "{one:?} {other:?}");
    }
    let (this, other) = (Table::new().with("a", 1).with("b", 1), Table::new().with("a", 1i64).with("c", 1));
    assert!(this.agrees_on(&other, "a"));
    assert!(!this.agrees_on(&other, "b"));
    assert!(!this.agrees_on(&other, "c"));
    assert!(this.agrees_on(&other, "d"));
}

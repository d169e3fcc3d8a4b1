use super::*;
use proptest::prelude::*;
use weir_amqp_wire::methods::basic;
use weir_amqp_wire::{Decimal, Source, Writer};

const NOW_MS: i64 = 1_700_000_000_123;

fn text(text: &'static str) -> ShortStr {
    ShortStr::from_static(text)
}

fn queue() -> ShortStr {
    text("queue")
}

/// The headers of a record, as another protocol's client would print them.
fn shown(record: &Record) -> Vec<String> {
    let value = |header: &Header| match &header.value {
        Some(value) => value.escape_ascii().to_string(),
        None => "null".to_owned(),
    };
    record.headers.iter().map(|header| format!("{}: {}", header.key, value(header))).collect()
}

/// Everything of a message in bytes, by which messages are compared: a number may not be equal to itself.
fn bytes(message: &Message) -> Bytes {
    let mut writer = Writer::new(0);
    let publish = basic::Publish {
        exchange: message.exchange.clone(),
        routing_key: message.routing_key.clone(),
        ..Default::default()
    };
    writer.content(1, &publish, &message.properties, &message.body).unwrap();
    writer.into_contiguous()
}

/// The message's record has these headers and is this message again.
fn check(message: Message, headers: &[&str]) {
    let record = message.clone().into_record(NOW_MS);
    assert_eq!(shown(&record), headers);
    assert_eq!((record.timestamp, &record.key, &record.value), (NOW_MS, &None, &Some(message.body.clone())));
    assert_eq!(Message::from_record(record, &queue()), message);
}

fn with_headers(table: Table) -> Message {
    Message {
        properties: BasicProperties { headers: Some(table), ..Default::default() },
        ..Default::default()
    }
}

#[test]
fn a_message_with_little() {
    check(Message::default(), &["amqp.exchange: ", "amqp.routing-key: "]);
    let message = Message {
        exchange: text("events"),
        routing_key: text("orders.new"),
        properties: BasicProperties {
            content_type: Some(text("application/json")),
            delivery_mode: Some(2),
            ..Default::default()
        },
        body: Bytes::from_static(b"{}"),
    };
    check(
        message,
        &[
            "amqp.exchange: events",
            "amqp.routing-key: orders.new",
            "amqp.content-type: application/json",
            "amqp.delivery-mode: 2",
        ],
    );
}

#[test]
fn all_properties() {
    let properties = BasicProperties {
        content_type: Some(text("a")),
        content_encoding: Some(text("b")),
        headers: None,
        delivery_mode: Some(1),
        priority: Some(255),
        correlation_id: Some(text("c")),
        reply_to: Some(text("d")),
        expiration: Some(text("60000")),
        message_id: Some(text("")),
        timestamp: Some(u64::MAX),
        message_type: Some(text("e")),
        user_id: Some(text("guest")),
        app_id: Some(text("f")),
        cluster_id: Some(text("g")),
    };
    check(
        Message { properties, ..Default::default() },
        &[
            "amqp.exchange: ",
            "amqp.routing-key: ",
            "amqp.content-type: a",
            "amqp.content-encoding: b",
            "amqp.correlation-id: c",
            "amqp.reply-to: d",
            "amqp.expiration: 60000",
            "amqp.message-id: ",
            "amqp.type: e",
            "amqp.user-id: guest",
            "amqp.app-id: f",
            "amqp.cluster-id: g",
            "amqp.delivery-mode: 1",
            "amqp.priority: 255",
            "amqp.timestamp: 18446744073709551615",
        ],
    );
}

#[test]
fn strings_need_no_types() {
    let table = Table::new().with("b", "2").with("a", "").with("b", "2").with("null", Value::Void);
    check(
        with_headers(table),
        &["amqp.exchange: ", "amqp.routing-key: ", "b: 2", "a: ", "b: 2", "null: null"],
    );
    // A table without fields is not the same as none.
    check(with_headers(Table::new()), &["amqp.exchange: ", "amqp.routing-key: ", "amqp.types: "]);
}

#[test]
fn scalars_are_text_beside_their_types() {
    let table = Table::new()
        .with("string", "text")
        .with("bool", true)
        .with("byte", Value::Int8(-1))
        .with("octet", Value::UInt8(200))
        .with("short", Value::Int16(-300))
        .with("ushort", Value::UInt16(60_000))
        .with("int", -70_000)
        .with("uint", Value::UInt32(u32::MAX))
        .with("long", i64::MIN)
        .with("Long", Value::Int64CapitalL(7))
        .with("float", Value::Float(0.1))
        .with("double", Value::Double(1e300))
        .with("infinite", Value::Double(f64::NEG_INFINITY))
        .with("time", Value::Timestamp(1_700_000_000))
        .with("binary", Value::Binary(Bytes::from_static(b"\xff")))
        .with("void", Value::Void);
    check(
        with_headers(table),
        &[
            "amqp.exchange: ",
            "amqp.routing-key: ",
            "amqp.types: StbBsuIilLfddTxV",
            "string: text",
            "bool: true",
            "byte: -1",
            "octet: 200",
            "short: -300",
            "ushort: 60000",
            "int: -70000",
            "uint: 4294967295",
            "long: -9223372036854775808",
            "Long: 7",
            "float: 0.1",
            "double: 1e300",
            "infinite: -inf",
            "time: 1700000000",
            "binary: \\xff",
            "void: null",
        ],
    );
}

#[test]
fn what_is_not_readable_is_kept_in_its_place() {
    let mut table = Table::new()
        .with("a", "1")
        .with("list", vec![Value::Void])
        .with("amqp.exchange", "mine")
        .with("price", Value::Decimal(Decimal { scale: 2, value: 995 }))
        .with("b", "2");
    table.push(ShortStr::from_bytes(Bytes::from_static(b"\xff")).unwrap(), Value::Void);
    check(
        with_headers(table),
        &[
            "amqp.exchange: ",
            "amqp.routing-key: ",
            "a: 1",
            "amqp.field: \\x04listA\\x00\\x00\\x00\\x01V",
            "amqp.field: \\ramqp.exchangeS\\x00\\x00\\x00\\x04mine",
            "amqp.field: \\x05priceD\\x02\\x00\\x00\\x03\\xe3",
            "b: 2",
            "amqp.field: \\x01\\xffV",
        ],
    );
}

#[test]
fn numbers_that_are_none_are_kept() {
    let bits = [0x7ff8_0000_0000_0000u64, 0x7ff0_0000_0000_0001, 0xfff8_dead_beef_0000];
    for bits in bits {
        let message = with_headers(Table::new().with("nan", Value::Double(f64::from_bits(bits))));
        let again = Message::from_record(message.clone().into_record(NOW_MS), &queue());
        assert_eq!(bytes(&again), bytes(&message));
    }
}

fn header(key: &str, value: &'static str) -> Header {
    Header { key: key.to_owned(), value: Some(Bytes::from_static(value.as_bytes())) }
}

#[test]
fn a_record_of_another_protocol() {
    let record = Record {
        offset: 7,
        timestamp: NOW_MS,
        key: Some(Bytes::from_static(b"customer 1")),
        value: Some(Bytes::from_static(b"an order")),
        headers: vec![
            header("trace", "abc"),
            Header { key: "nothing".to_owned(), value: None },
            header("amqp.priority", "high"),
            header("amqp.content-type", "text/plain"),
            header(&"x".repeat(256), "a name without a place"),
        ],
    };
    let headers = Table::new()
        .with("trace", "abc")
        .with("nothing", Value::Void)
        .with("amqp.priority", "high")
        .with("kafka.key", "customer 1");
    let message = Message {
        exchange: ShortStr::new(),
        routing_key: queue(),
        properties: BasicProperties {
            content_type: Some(text("text/plain")),
            headers: Some(headers),
            timestamp: Some(1_700_000_000),
            ..Default::default()
        },
        body: Bytes::from_static(b"an order"),
    };
    assert_eq!(Message::from_record(record, &queue()), message);
    // A record with nothing, not even a time.
    let empty = Record { timestamp: -1, ..Record::default() };
    let message = Message { routing_key: queue(), ..Default::default() };
    assert_eq!(Message::from_record(empty, &queue()), message);
}

#[test]
fn a_record_that_was_altered_on_its_way() {
    let table = Table::new().with("count", 1).with("flag", true);
    let mut record = with_headers(table).into_record(NOW_MS);
    record.headers.last_mut().unwrap().value = Some(Bytes::from_static(b"maybe"));
    record.headers.push(header("added", "7"));
    record.headers.push(header("amqp.field", "no field"));
    let headers = Message::from_record(record, &queue()).properties.headers.unwrap();
    let expected =
        Table::new().with("count", 1).with("flag", "maybe").with("added", "7").with("amqp.field", "no field");
    assert_eq!(headers, expected);
}

fn any_message(source: &mut Source) -> Message {
    Message {
        exchange: source.short_str(),
        routing_key: source.short_str(),
        properties: BasicProperties::generate(source),
        body: source.bytes(),
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let names = [
        EXCHANGE,
        ROUTING_KEY,
        CONTENT_TYPE,
        DELIVERY_MODE,
        PRIORITY,
        TIMESTAMP,
        TYPES,
        FIELD,
        "amqp.other",
        "a",
        "",
    ];
    let key = prop_oneof![prop::sample::select(names.to_vec()).prop_map(str::to_owned), ".{0,5}"];
    let digits = "[0-9]{1,3}".prop_map(String::into_bytes);
    let value = prop::option::of(prop_oneof![prop::collection::vec(any::<u8>(), 0..300), digits]);
    (key, value).prop_map(|(key, value)| Header { key, value: value.map(Bytes::from) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_record_gives_its_message_back(seed: u64) {
        let message = any_message(&mut Source::new(seed));
        let record = message.clone().into_record(NOW_MS);
        let again = Message::from_record(record, &queue());
        prop_assert_eq!(format!("{again:?}"), format!("{message:?}"));
        prop_assert_eq!(bytes(&again), bytes(&message));
    }

    /// And what message that is goes through a record unchanged.
    #[test]
    fn every_record_is_a_message(
        headers in prop::collection::vec(any_header(), 0..12),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..10)),
        timestamp: i64,
    ) {
        let record = Record { offset: 3, timestamp, key: key.map(Bytes::from), value: None, headers };
        let message = Message::from_record(record, &queue());
        let again = Message::from_record(message.clone().into_record(NOW_MS), &queue());
        prop_assert_eq!(bytes(&again), bytes(&message));
    }
}

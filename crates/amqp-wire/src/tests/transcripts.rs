//! Methods and content headers byte by byte, above all where bits share an octet.

use super::{hex, payload};
use crate::methods::{basic, channel, confirm, connection, exchange, queue};
use crate::*;
use bytes::Bytes;

/// The method has this payload, and the payload is this method.
fn check(method: impl Into<Method>, transcript: &str) {
    let method = method.into();
    assert_eq!(payload(method.clone()), hex(transcript), "{method:?}");
    assert_eq!(Method::decode(hex(transcript)), Ok(method));
}

fn text(text: &'static str) -> ShortStr {
    ShortStr::from_static(text)
}

#[test]
fn five_flags_of_queue_declare_share_an_octet() {
    // Class, method, ticket, name, flags, arguments.
    let none = queue::Declare { queue: text("q"), ..Default::default() };
    check(none.clone(), "0032 000a 0000 01 71 00 00000000");
    check(queue::Declare { passive: true, ..none.clone() }, "0032 000a 0000 01 71 01 00000000");
    check(queue::Declare { durable: true, ..none.clone() }, "0032 000a 0000 01 71 02 00000000");
    check(queue::Declare { exclusive: true, ..none.clone() }, "0032 000a 0000 01 71 04 00000000");
    check(queue::Declare { auto_delete: true, ..none.clone() }, "0032 000a 0000 01 71 08 00000000");
    check(queue::Declare { no_wait: true, ..none.clone() }, "0032 000a 0000 01 71 10 00000000");
    check(queue::Declare { durable: true, no_wait: true, ..none }, "0032 000a 0000 01 71 12 00000000");
}

#[test]
fn five_flags_of_exchange_declare_share_an_octet() {
    let declare = exchange::Declare {
        exchange: text("e"),
        exchange_type: text("direct"),
        durable: true,
        internal: true,
        ..Default::default()
    };
    check(declare, "0028 000a 0000 01 65 06 646972656374 0a 00000000");
}

#[test]
fn four_flags_of_basic_consume_share_an_octet() {
    let consume = basic::Consume {
        queue: text("q"),
        consumer_tag: text("c"),
        no_ack: true,
        exclusive: true,
        arguments: Table::new().with("x-priority", 5),
        ..Default::default()
    };
    check(consume, "003c 0014 0000 01 71 01 63 06 00000010 0a 782d7072696f72697479 49 00000005");
}

#[test]
fn flags_apart_have_octets_of_their_own() {
    let deliver = basic::Deliver {
        consumer_tag: text("c"),
        delivery_tag: 7,
        redelivered: true,
        exchange: text("e"),
        routing_key: text("k"),
    };
    check(deliver, "003c 003c 01 63 0000000000000007 01 01 65 01 6b");
    check(basic::Nack { delivery_tag: 1, multiple: false, requeue: true }, "003c 0078 0000000000000001 02");
    check(basic::Ack { delivery_tag: u64::MAX, multiple: true }, "003c 0050 ffffffffffffffff 01");
    check(basic::Qos { prefetch_size: 0, prefetch_count: 10, global: true }, "003c 000a 00000000 000a 01");
    check(confirm::Select { no_wait: true }, "0055 000a 01");
    check(channel::Flow { active: true }, "0014 0014 01");
}

#[test]
fn a_ninth_flag_begins_an_octet() {
    let mut writer = Writer::new(0);
    for number in 0..9 {
        writer.flag(number % 2 == 0);
    }
    writer.put(&[0xff]);
    writer.flag(true);
    let written = writer.into_contiguous();
    assert_eq!(written, hex("55 01 ff 01"));
    let mut reader = reader::Reader::new(written);
    let flags: Vec<bool> = (0..9).map(|_| reader.flag().unwrap()).collect();
    assert_eq!(flags, [true, false, true, false, true, false, true, false, true]);
    assert_eq!(reader.array(), Ok([0xff]));
    assert_eq!(reader.flag(), Ok(true));
}

#[test]
fn unused_bits_of_an_octet_of_flags_mean_nothing() {
    let decoded = Method::decode(hex("003c 0050 0000000000000001 ff")).unwrap();
    assert_eq!(decoded, Method::from(basic::Ack { delivery_tag: 1, multiple: true }));
}

#[test]
fn reserved_fields_are_not_looked_at_and_written_as_nothing() {
    let open = connection::Open { virtual_host: text("/") };
    check(open.clone(), "000a 0028 01 2f 00 00");
    assert_eq!(Method::decode(hex("000a 0028 01 2f 02 ffff 01")), Ok(open.into()));
    check(connection::OpenOk {}, "000a 0029 00");
    check(channel::Open {}, "0014 000a 00");
    check(channel::OpenOk {}, "0014 000b 00000000");
    check(basic::GetEmpty {}, "003c 0048 00");
    let get = basic::Get { queue: text("q"), no_ack: true };
    assert_eq!(Method::decode(hex("003c 0046 1234 01 71 01")), Ok(get.into()));
}

#[test]
fn the_answer_to_exchange_unbind_has_an_odd_number() {
    check(exchange::UnbindOk {}, "0028 0033");
    check(exchange::BindOk {}, "0028 001f");
    check(queue::UnbindOk {}, "0032 0033");
    assert_eq!(
        Method::decode(hex("0028 0029")).unwrap_err(),
        DecodeError { what: "method", at: 0, why: Why::UnknownMethod { class: 40, method: 41 } }
    );
}

#[test]
fn a_handshake() {
    let start = connection::Start {
        version_major: 0,
        version_minor: 9,
        server_properties: Table::new().with("product", "Weir"),
        mechanisms: Bytes::from_static(b"PLAIN"),
        locales: Bytes::from_static(b"en_US"),
    };
    check(
        start,
        "000a 000a 00 09 00000011 07 70726f64756374 53 00000004 57656972
         00000005 504c41494e 00000005 656e5f5553",
    );
    let start_ok = connection::StartOk {
        mechanism: text("PLAIN"),
        response: Secret::from(Bytes::from_static(b"\0u\0p")),
        locale: text("en_US"),
        ..Default::default()
    };
    assert!(format!("{start_ok:?}").contains("Secret(4 bytes)"));
    check(start_ok, "000a 000b 00000000 05 504c41494e 00000004 00750070 05 656e5f5553");
    let tune = connection::Tune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 };
    check(tune, "000a 001e 07ff 00020000 003c");
    let close = connection::Close {
        reply_code: ReplyCode::NotAllowed.number(),
        reply_text: ReplyCode::NotAllowed.text("no"),
        class_id: 10,
        method_id: 40,
    };
    check(close, "000a 0032 0212 10 4e4f545f414c4c4f574544202d206e6f 000a 0028");
}

#[test]
fn names_are_utf8_and_what_a_message_carries_need_not_be() {
    let declare = "0032 000a 0000 02 c328 00 00000000";
    assert_eq!(
        Method::decode(hex(declare)).unwrap_err(),
        DecodeError { what: "queue.declare.queue", at: 6, why: Why::NotUtf8 }
    );
    let routing_key = ShortStr::from_bytes(hex("c328")).unwrap();
    check(basic::Publish { routing_key, ..Default::default() }, "003c 0028 0000 00 02 c328 00");
}

#[test]
fn a_short_string_has_up_to_255_bytes() {
    let longest = "a".repeat(255);
    let publish =
        basic::Publish { routing_key: ShortStr::try_from(longest.clone()).unwrap(), ..Default::default() };
    check(publish, &format!("003c 0028 0000 00 ff {} 00", "61".repeat(255)));
    assert_eq!(ShortStr::try_from(longest + "a"), Err(TooLong { bytes: 256 }));
    // Cut on the boundary of a letter of two bytes, and marked.
    let cut = ShortStr::truncated(&format!("a{}", "ß".repeat(200)));
    assert_eq!(cut, *format!("a{}...", "ß".repeat(125)));
}

#[test]
fn cut_and_overlong_payloads() {
    let error = Method::decode(hex("0032 000a 0000 05 71")).unwrap_err();
    assert_eq!(error.to_string(), "queue.declare.queue at byte 7: needs 5 bytes but only 1 are left");
    assert_eq!(error.reply_code(), ReplyCode::FrameError);
    let error = Method::decode(hex("0028 0033 00")).unwrap_err();
    assert_eq!(error, DecodeError { what: "exchange.unbind-ok", at: 4, why: Why::Trailing(1) });
    assert_eq!(Method::decode(hex("0028 00")).unwrap_err().what, "method id");
}

#[test]
fn properties_lie_in_the_order_of_their_flags() {
    let properties = BasicProperties {
        content_type: Some(text("text/plain")),
        headers: Some(Table::new().with("a", true)),
        delivery_mode: Some(2),
        timestamp: Some(1_700_000_000),
        cluster_id: Some(text("c")),
        ..Default::default()
    };
    let transcript = "003c 0000 0000000000000003 b044
        0a 746578742f706c61696e 00000004 01 61 74 01 02 000000006553f100 01 63";
    check_header(ContentHeader { body_bytes: 3, properties }, transcript);
    // All fourteen, from the highest bit down.
    let properties = BasicProperties {
        content_type: Some(text("0")),
        content_encoding: Some(text("1")),
        headers: Some(Table::new()),
        delivery_mode: Some(3),
        priority: Some(4),
        correlation_id: Some(text("5")),
        reply_to: Some(text("6")),
        expiration: Some(text("7")),
        message_id: Some(text("8")),
        timestamp: Some(9),
        message_type: Some(text("a")),
        user_id: Some(text("b")),
        app_id: Some(text("c")),
        cluster_id: Some(text("d")),
    };
    let transcript = "003c 0000 0000000000000000 fffc
        0130 0131 00000000 03 04 0135 0136 0137 0138 0000000000000009 0161 0162 0163 0164";
    check_header(ContentHeader { body_bytes: 0, properties }, transcript);
}

#[test]
fn an_empty_property_is_not_an_absent_one() {
    let empty = BasicProperties { reply_to: Some(text("")), ..Default::default() };
    check_header(ContentHeader { body_bytes: 1, properties: empty }, "003c 0000 0000000000000001 0200 00");
    check_header(ContentHeader { body_bytes: 1, ..Default::default() }, "003c 0000 0000000000000001 0000");
}

fn check_header(header: ContentHeader, transcript: &str) {
    let mut writer = Writer::new(0);
    header.properties.write_header(header.body_bytes, &mut writer);
    assert_eq!(writer.into_contiguous(), hex(transcript));
    assert_eq!(ContentHeader::decode(hex(transcript)), Ok(header));
}

#[test]
fn flags_may_continue_but_name_nothing() {
    let decoded = ContentHeader::decode(hex("003c 0000 0000000000000000 1001 0001 0000 02")).unwrap();
    assert_eq!(decoded.properties, BasicProperties { delivery_mode: Some(2), ..Default::default() });
    // RabbitMQ does not look at the bit that no property has.
    assert_eq!(ContentHeader::decode(hex("003c 0000 0000000000000000 0002")), Ok(ContentHeader::default()));
    let error = ContentHeader::decode(hex("003c 0000 0000000000000000 0001 8000 00")).unwrap_err();
    let why = Why::UnknownProperties(0x8000);
    assert_eq!(error, DecodeError { what: "content header.flags", at: 14, why });
    assert_eq!(error.reply_code(), ReplyCode::SyntaxError);
    let error = ContentHeader::decode(hex("003c 0000 0000000000000000 0001")).unwrap_err();
    assert_eq!(error.why, Why::Truncated { needed: 2, left: 0 });
}

#[test]
fn a_content_header_of_another_class_or_with_weight_is_unexpected() {
    let error = ContentHeader::decode(hex("0032 0000 0000000000000000 0000")).unwrap_err();
    assert_eq!((error.why, error.reply_code()), (Why::Class(50), ReplyCode::UnexpectedFrame));
    let error = ContentHeader::decode(hex("003c 0001 0000000000000000 0000")).unwrap_err();
    assert_eq!((error.at, error.why, error.reply_code()), (2, Why::Weight(1), ReplyCode::UnexpectedFrame));
    let error = ContentHeader::decode(hex("003c 0000 0000000000000000 0000 00")).unwrap_err();
    assert_eq!(error.why, Why::Trailing(1));
}

#[test]
fn reply_codes_have_rabbitmqs_names_and_scopes() {
    assert_eq!(ReplyCode::NotFound.text("no queue 'q'"), "NOT_FOUND - no queue 'q'");
    assert_eq!(ReplyCode::from_number(406), Some(ReplyCode::PreconditionFailed));
    assert_eq!(ReplyCode::from_number(REPLY_SUCCESS), None);
    for &code in ReplyCode::ALL {
        assert_eq!(ReplyCode::from_number(code.number()), Some(code));
    }
    let soft = ReplyCode::ALL.iter().filter(|code| code.scope() == Scope::Channel);
    assert_eq!(soft.map(|code| code.number()).collect::<Vec<_>>(), [311, 312, 313, 403, 404, 405, 406]);
    assert_eq!(ReplyCode::NotFound.text(&"x".repeat(400)).len(), SHORT_STR_BYTES_MAX);
}

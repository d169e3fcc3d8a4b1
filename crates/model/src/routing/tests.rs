//! What is stored comes back as it went, damage is an error, and values are equal where RabbitMQ's are.

use bytes::Bytes;
use proptest::prelude::*;

use super::arguments::*;
use super::*;
use crate::NodeId;
use crate::wire::{DecodeError, Reader, Writer};

fn written(encode: impl FnOnce(&mut Writer)) -> Bytes {
    let mut out = Writer::new();
    encode(&mut out);
    out.finish()
}

fn read<T>(bytes: Bytes, decode: fn(&mut Reader) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    let mut reader = Reader::new("a test", bytes);
    let value = decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

fn named(name: &str, value: ArgumentValue) -> (String, ArgumentValue) {
    (name.to_owned(), value)
}

fn every_type() -> Arguments {
    vec![
        named("void", ArgumentValue::Void),
        named("bool", ArgumentValue::Bool(true)),
        named("integer", ArgumentValue::Integer(-5)),
        named("float", ArgumentValue::float(0.25)),
        named("bytes", ArgumentValue::Bytes(Bytes::from_static(b"\xff\x00"))),
        named("timestamp", ArgumentValue::Timestamp(u64::MAX)),
        named("decimal", ArgumentValue::Decimal { scale: 2, digits: 314 }),
        named("list", ArgumentValue::List(vec![ArgumentValue::Integer(1), ArgumentValue::List(vec![])])),
        named("table", ArgumentValue::Table(vec![named("inner", ArgumentValue::text("text"))])),
    ]
}

fn exchanges() -> Vec<ExchangeMeta> {
    let declared = |kind, arguments| {
        ExchangeMeta::declared("/".into(), "events".into(), kind, arguments).expect("a valid declaration")
    };
    let mut exchanges: Vec<ExchangeMeta> =
        RoutingKind::ALL.into_iter().map(|kind| declared(kind.name(), vec![])).collect();
    let delayed = vec![named(ExchangeKind::DELAYED_TYPE, ArgumentValue::text("topic"))];
    exchanges.push(declared(ExchangeKind::DELAYED, delayed));
    let mut everything = declared("headers", every_type());
    everything.alternate_exchange = Some("others".into());
    everything.owner = Some(NodeId(7));
    (everything.durable, everything.auto_delete, everything.internal) = (false, true, true);
    exchanges.push(everything);
    for source in [HashSource::Header("id".into()), HashSource::CorrelationId, HashSource::Timestamp] {
        exchanges.push(ExchangeMeta { hash_source: source, ..declared("x-consistent-hash", vec![]) });
    }
    exchanges
}

fn bindings() -> Vec<BindingMeta> {
    [Destination::Queue("jobs".into()), Destination::Exchange("events".into())]
        .into_iter()
        .map(|destination| {
            let key = Bytes::from_static(b"a.*.#");
            BindingMeta::new("/".into(), "events".into(), destination, key, every_type())
        })
        .collect()
}

#[test]
fn exchanges_and_bindings_come_back_as_they_went() {
    for exchange in exchanges() {
        assert_eq!(read(written(|out| exchange.encode(out)), ExchangeMeta::decode), Ok(exchange));
    }
    for binding in bindings() {
        assert_eq!(read(written(|out| binding.encode(out)), BindingMeta::decode), Ok(binding));
    }
}

#[test]
fn kinds_are_found_by_the_names_that_they_print() {
    for kind in RoutingKind::ALL {
        assert_eq!(ExchangeKind::declared(kind.name(), &[]), Ok(ExchangeKind::Plain(kind)));
        let delayed = vec![named(ExchangeKind::DELAYED_TYPE, ArgumentValue::text(kind.name()))];
        assert_eq!(ExchangeKind::declared(ExchangeKind::DELAYED, &delayed), Ok(ExchangeKind::Delayed(kind)));
    }
    assert_eq!(
        ExchangeKind::declared("amq.topic", &[]),
        Err(InvalidExchange::UnknownKind("amq.topic".into()))
    );
    // One that delays cannot delay one that delays: RabbitMQ's plugin once looped for ever there.
    let itself = vec![named(ExchangeKind::DELAYED_TYPE, ArgumentValue::text(ExchangeKind::DELAYED))];
    for arguments in [vec![], itself] {
        let declared = ExchangeKind::declared(ExchangeKind::DELAYED, &arguments);
        assert_eq!(declared, Err(InvalidExchange::DelayedKind));
    }
}

#[test]
fn arguments_say_what_is_hashed_and_where_the_rest_goes() {
    let declare = |arguments| ExchangeMeta::declared("/".into(), "x".into(), "x-consistent-hash", arguments);
    let header = || named("hash-header", ArgumentValue::text("id"));
    let property = |name: &str| named("hash-property", ArgumentValue::text(name));
    let source = |arguments| declare(arguments).map(|exchange| exchange.hash_source);
    assert_eq!(source(vec![]), Ok(HashSource::RoutingKey));
    assert_eq!(source(vec![header()]), Ok(HashSource::Header("id".into())));
    assert_eq!(source(vec![property("message_id")]), Ok(HashSource::MessageId));
    assert_eq!(source(vec![property("user_id")]), Err(InvalidExchange::HashProperty("user_id".into())));
    assert_eq!(source(vec![header(), property("timestamp")]), Err(InvalidExchange::TwoHashSources));
    let number = named("hash-header", ArgumentValue::Integer(1));
    assert_eq!(source(vec![number]), Err(InvalidExchange::NotText("hash-header")));

    let alternate = declare(vec![named("alternate-exchange", ArgumentValue::text("rest"))]);
    assert_eq!(alternate.map(|exchange| exchange.alternate_exchange), Ok(Some("rest".into())));
    let number = declare(vec![named("alternate-exchange", ArgumentValue::Integer(1))]);
    assert_eq!(number, Err(InvalidExchange::NotText("alternate-exchange")));
    let long = ExchangeMeta::declared("/".into(), "x".repeat(256), "direct", vec![]);
    assert_eq!(long, Err(InvalidExchange::LongName(256)));
}

#[test]
fn a_second_declaration_may_differ_only_in_what_does_not_count() {
    let declare = |kind, arguments| {
        ExchangeMeta::declared("/".into(), "x".into(), kind, arguments).expect("a valid declaration")
    };
    let direct = declare("direct", vec![]);
    assert_eq!(direct.inequivalence(&declare("direct", vec![named("note", ArgumentValue::Void)])), None);
    let words = |other: &ExchangeMeta| direct.inequivalence(other).map(|why| why.to_string());
    assert_eq!(
        words(&declare("fanout", vec![])).as_deref(),
        Some("inequivalent arg 'type': received 'fanout' but current is 'direct'")
    );
    assert_eq!(
        words(&ExchangeMeta { durable: false, ..direct.clone() }).as_deref(),
        Some("inequivalent arg 'durable': received 'false' but current is 'true'")
    );
    assert_eq!(
        words(&declare("direct", vec![named("alternate-exchange", ArgumentValue::text("ae"))])).as_deref(),
        Some("inequivalent arg 'alternate-exchange': received 'ae' but current is none")
    );
    let delayed = |inner| {
        declare(ExchangeKind::DELAYED, vec![named(ExchangeKind::DELAYED_TYPE, ArgumentValue::text(inner))])
    };
    let why = delayed("direct").inequivalence(&delayed("topic")).map(|why| why.field);
    assert_eq!(why, Some(ExchangeKind::DELAYED_TYPE));
}

#[test]
fn the_order_of_arguments_does_not_make_another_binding() {
    let bind = |arguments| {
        BindingMeta::new("/".into(), "x".into(), Destination::Queue("q".into()), Bytes::new(), arguments)
    };
    let (a, b) = (named("a", ArgumentValue::Integer(1)), named("b", ArgumentValue::Integer(2)));
    assert_eq!(bind(vec![a.clone(), b.clone()]), bind(vec![b.clone(), a.clone()]));
    assert_ne!(bind(vec![a.clone()]), bind(vec![named("a", ArgumentValue::float(1.0))]));
    assert_ne!(bind(vec![a]), bind(vec![b]));
}

#[test]
fn values_are_equal_where_they_are_to_rabbitmq() {
    let (integer, float) = (ArgumentValue::Integer, ArgumentValue::float);
    let same = [
        (ArgumentValue::Timestamp(1), float(1.0)),
        (integer(1), integer(1)),
        (integer(1), ArgumentValue::Timestamp(1)),
        (float(0.5), float(0.5)),
        (integer(1), float(1.0)),
        (integer(i64::MIN), float(-9_223_372_036_854_775_808.0)),
        (ArgumentValue::text("a"), ArgumentValue::Bytes(Bytes::from_static(b"a"))),
        (ArgumentValue::Void, ArgumentValue::Void),
        (ArgumentValue::List(vec![integer(1)]), ArgumentValue::List(vec![integer(1)])),
    ];
    let others = [
        (integer(1), integer(2)),
        (integer(1), float(1.5)),
        (integer(i64::MAX), float(9_223_372_036_854_775_808.0)),
        (integer(0), float(f64::NAN)),
        (integer(1), ArgumentValue::text("1")),
        (integer(1), ArgumentValue::Bool(true)),
        (integer(-1), ArgumentValue::Timestamp(u64::MAX)),
        (float(-1.0), ArgumentValue::Timestamp(u64::MAX)),
        (ArgumentValue::Void, ArgumentValue::text("")),
        (ArgumentValue::Bool(false), ArgumentValue::Void),
        // Inside a list the type counts.
        (ArgumentValue::List(vec![integer(1)]), ArgumentValue::List(vec![ArgumentValue::Timestamp(1)])),
    ];
    for (a, b) in same {
        assert!(a.same_value(&b) && b.same_value(&a), "{a:?} and {b:?}");
    }
    for (a, b) in others {
        assert!(!a.same_value(&b) && !b.same_value(&a), "{a:?} and {b:?}");
    }
}

#[test]
fn an_argument_declared_again_is_the_same_within_its_class_of_types() {
    use ArgumentValue::{Integer, Timestamp};
    let float = ArgumentValue::float;
    for (a, b) in [(Integer(1), Timestamp(1)), (float(0.5), float(0.5)), (Integer(7), Integer(7))] {
        assert!(a.is_equivalent(&b) && b.is_equivalent(&a), "{a:?} and {b:?}");
    }
    for (a, b) in [(Integer(10), float(10.0)), (Timestamp(1), float(1.0)), (Integer(1), Integer(2))] {
        assert!(!a.is_equivalent(&b) && !b.is_equivalent(&a), "{a:?} and {b:?}");
    }
}

/// A list in a list, and so on, `depth` levels in all.
fn nested(depth: usize) -> ArgumentValue {
    (1..depth).fold(ArgumentValue::Void, |inner, _| ArgumentValue::List(vec![inner]))
}

#[test]
fn every_bound_holds() {
    assert_eq!(check_arguments(&every_type()), Ok(()));
    let many =
        |count: usize| (0..count).map(|n| named(&n.to_string(), ArgumentValue::Void)).collect::<Vec<_>>();
    assert_eq!(check_arguments(&many(ARGUMENTS_MAX)), Ok(()));
    assert_eq!(check_arguments(&many(ARGUMENTS_MAX + 1)), Err(InvalidArguments::TooMany(ARGUMENTS_MAX + 1)));
    let long = named(&"n".repeat(ARGUMENT_NAME_BYTES_MAX + 1), ArgumentValue::Void);
    assert_eq!(check_arguments(&[long]), Err(InvalidArguments::LongName(ARGUMENT_NAME_BYTES_MAX + 1)));
    let deepest = vec![named("deep", nested(ARGUMENT_DEPTH_MAX))];
    assert_eq!(check_arguments(&deepest), Ok(()));
    let deeper = vec![named("deep", nested(ARGUMENT_DEPTH_MAX + 1))];
    assert_eq!(check_arguments(&deeper), Err(InvalidArguments::TooDeep("deep".into())));
    // What a table takes is counted to the byte.
    let sized = |bytes: usize| vec![named("v", ArgumentValue::text("x".repeat(bytes - 14)))];
    let largest = sized(ARGUMENTS_BYTES_MAX);
    assert_eq!(written(|out| encode_arguments(&largest, out)).len(), ARGUMENTS_BYTES_MAX);
    assert_eq!(check_arguments(&largest), Ok(()));
    let larger = sized(ARGUMENTS_BYTES_MAX + 1);
    assert_eq!(check_arguments(&larger), Err(InvalidArguments::TooLarge(ARGUMENTS_BYTES_MAX + 1)));

    assert_eq!(read(written(|out| encode_arguments(&deepest, out)), decode_arguments), Ok(deepest));
    assert!(read(written(|out| encode_arguments(&deeper, out)), decode_arguments).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_damage_is_an_error_or_another_value_and_never_a_panic(
        which in 0usize..100, at in 0usize..400, byte in any::<u8>(), cut in 0usize..400,
    ) {
        let damaged = |bytes: Bytes| {
            let mut bytes = bytes.to_vec();
            if at < bytes.len() { bytes[at] = byte; }
            bytes.truncate(cut);
            Bytes::from(bytes)
        };
        let (exchanges, bindings) = (exchanges(), bindings());
        let exchange = &exchanges[which % exchanges.len()];
        let _ = read(damaged(written(|out| exchange.encode(out))), ExchangeMeta::decode);
        let binding = &bindings[which % bindings.len()];
        let _ = read(damaged(written(|out| binding.encode(out))), BindingMeta::decode);
    }
}
